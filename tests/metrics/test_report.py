"""The report: well-formed, self-contained, complete, and fit for a phone."""

import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest
import sample_run

from unimas_jax.metrics import report
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.specs import SpecError

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser')
CHROMIUM_FLAGS = (
    '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run '
    '--disable-background-networking --disable-component-update --disable-sync '
    '--window-size=1280,900'
).split()


@pytest.fixture(scope='module')
def page(tmp_path_factory):
    folder = sample_run.make_run(tmp_path_factory.mktemp('runs') / 'my_run')
    report.write(folder)
    return folder.report.read_text()


@pytest.fixture(scope='module')
def tree(page):
    assert page.startswith('<!doctype html>\n')
    return ElementTree.fromstring(page.removeprefix('<!doctype html>\n'))


def text_of(element):
    return ' '.join(' '.join(element.itertext()).split())


def test_the_page_needs_nothing_but_itself(tree, page):
    tags = {element.tag for element in tree.iter()}
    assert not tags & {'script', 'link', 'img', 'iframe', 'object', 'embed', 'a'}
    names = {name for element in tree.iter() for name in element.attrib}
    assert not {n for n in names if n in ('src', 'href') or n.startswith('on')}
    style = tree.find('head/style').text
    assert not re.search(r'url\(|@import|https?:', style)
    assert 'prefers-color-scheme: dark' in style


def test_the_head_tells_steps_and_time(tree):
    about = text_of(tree.find('.//header'))
    assert about.startswith('my_run 8 steps · 32s · ')


def test_tiles_compare_the_ends_of_the_run(tree):
    tiles = [text_of(tile) for tile in tree.iterfind(".//div[@class='tile']")]
    assert tiles == [
        'dev score 0.100 → 0.600',
        'training score 0.100 → 0.800',
        'legality 0.900 → 0.900',
        'tokens/s, median 1,504',
    ]


def test_curves_that_the_run_has_are_drawn_in_order(tree):
    titles = [text_of(h) for h in tree.iterfind(".//div[@class='card']/h3")]
    assert titles == [
        'Training score',
        'Evaluation score',
        'Reward',
        'Parts of the reward',
        'Legal replies',
        'Truncated replies',
        'Reply length tokens',
        'Entropy nats',
        'KL to the sampling policy nats',
        'Clipped tokens',
        'Gradient norm',
        'Sampling speed tokens/s',
        'Seconds by phase',
    ]
    assert len(tree.findall('.//svg')) == len(titles)
    legends = [text_of(x) for x in tree.iterfind(".//div[@class='legend']")]
    assert legends[2] == 'decompose 0.7 answer 0.8'


def test_the_table_compares_before_and_after(tree):
    [table] = [t for t in tree.iter('table') if text_of(t).startswith('split before')]
    rows = [text_of(row) for row in table.iterfind('tbody/tr')]
    assert rows == [
        'dev step 0 → 8, 50 queries, 1 failed 0.100 [0.050, 0.170] '
        '0.600 [0.550, 0.670] +0.500',
        'legal replies, answer 0.550 0.800 +0.250',
    ]


def test_sample_traces_are_best_middle_worst_then_evaluations(tree):
    traces = tree.findall(".//details[@class='card trace']")
    assert [text_of(t.find('summary')) for t in traces] == [
        'Step 8, highest reward: q2, finished after 2 turns, mean reward +1.00',
        'Step 8, middle reward: q0, finished after 2 turns, mean reward +0.50',
        'Step 8, lowest reward: q1, finished after 2 turns, mean reward -1.00',
        'dev, step 0: q0, finished after 2 turns',
        'dev, step 8: q0, finished after 2 turns',
    ]
    text = text_of(traces[0])
    assert 'gold ["Ada"]' in text
    assert '</pre><script>alert("1")</script> & �]0;owned� � end' in text
    assert 'reward +1.00 (token_f1 +1.00, format +0.00) advantage +0.75' in text
    assert 'masked: tool' in text
    assert 'illegal: no <final_answer>' in text
    assert 'reads #1, #2' in text


def test_every_metric_is_listed_and_unknown_ones_under_other(tree):
    [table] = [t for t in tree.iter('table') if 'least' in text_of(t)]
    rows = [text_of(row) for row in table.iterfind('tbody/tr')]
    assert rows[-2:] == ['Other', 'my/<own> 1 1 1 1']
    assert len(rows) == 23 + 7


def test_configuration_and_versions_are_kept(tree):
    text = text_of(tree)
    assert '# one <model> & two roles' in text
    assert re.search(r'python 3\.\d+', text)


def test_a_run_that_only_began_has_a_report(tmp_path):
    folder = RunFolder(tmp_path)
    folder.prepare()
    folder.write_config('x = 1')
    report.write(folder)
    assert 'x = 1' in folder.report.read_text()
    folder.append_metrics(0, {'eval/dev/score': 0.25})
    report.write(folder)
    page = folder.report.read_text()
    assert '0.250' in page
    assert '<svg' not in page


def test_the_table_has_what_stands_beside_the_score(tmp_path):
    folder = RunFolder(tmp_path)
    folder.prepare()
    folder.write_config('x = 1')
    for step, f1, tokens in ((0, 0.25, 9.0), (80, 0.5, 5.0)):
        row = {'score': f1, 'metric/f1': f1, 'pass@4': f1, 'response_tokens': tokens}
        folder.append_metrics(step, {f'eval/test/{k}': v for k, v in row.items()})
    folder.append_metrics(80, {'eval/test_best/score': 0.75, 'eval/test_best/step': 60})
    report.write(folder)
    page = folder.report.read_text()
    rows = re.findall(r'<tr><td>(.*?)</td>(.*?)</tr>', page)
    table = {name: cells for name, cells in rows}
    assert '+0.250' in table['f1'] and 'good' in table['f1']
    assert '+0.250' in table['solved, best of 4']
    assert '-4.000' in table['tokens written'] and 'dim' in table['tokens written']
    assert any(
        name.startswith('<b>test_best</b>') and 'step 60' in name for name in table
    )


def test_a_folder_without_a_run_gets_no_report(tmp_path):
    with pytest.raises(SpecError, match='RUN_DIR'):
        report.write(RunFolder(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(CHROMIUM is None, reason='needs chromium: apt-get install chromium')
@pytest.mark.parametrize('width', [360, 768, 1200])
def test_a_browser_shows_it_without_sideways_scrolling(page, tmp_path, width):
    """The page is framed at the width of a phone, with everything opened."""
    page = page.replace('<details', '<details open=""')
    framed = page.replace('&', '&amp;').replace('"', '&quot;')
    wrapper = tmp_path / 'wrapper.html'
    wrapper.write_text(
        f'<!doctype html><body><iframe style="width:{width}px;height:900px;border:0" '
        f'srcdoc="{framed}"></iframe><script>onload = () => {{'
        'const d = document.querySelector("iframe").contentDocument;'
        'const bars = [...d.querySelectorAll("svg")].map(s => s.clientHeight);'
        'const tight = [...d.querySelectorAll(".tile")].filter('
        't => t.scrollWidth > t.clientWidth);'
        'document.title = [d.documentElement.scrollWidth, bars.length,'
        'Math.min(...bars), d.querySelectorAll("script").length, tight.length]'
        '.join(" ");}</script>',
        encoding='utf-8',
    )
    done = subprocess.run(
        [CHROMIUM, *CHROMIUM_FLAGS, f'--user-data-dir={tmp_path / "profile"}']
        + ['--dump-dom', wrapper.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    numbers = re.search(r'<title>([\d ]+)</title>', done.stdout)[1]
    content, charts, lowest, scripts, tight = map(int, numbers.split())
    assert content <= width
    assert (charts, scripts, tight) == (13, 0, 0)
    assert lowest >= 120
