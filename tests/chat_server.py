"""An OpenAI-compatible server on loopback that follows a script."""

import contextlib
import http.server
import json
import threading

from unimas_jax.specs import EndpointSpec

SECRET = 'sk-very-secret'


class Chat(http.server.BaseHTTPRequestHandler):
    """Answers with the script's next status or choice, then with an echo."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        self.server.requests.append((self.path, dict(self.headers), body))
        step = self.server.script.pop(0) if self.server.script else {}
        status, answer = (
            (step, f'no {SECRET}') if isinstance(step, int) else (200, step)
        )
        if isinstance(answer, dict) and 'raw' not in answer:
            said = body['messages'][-1]['content']
            message = {'role': 'assistant', 'content': answer.get('text', f'[{said}]')}
            choice = {'message': message, 'finish_reason': answer.get('reason', 'stop')}
            usage = {'prompt_tokens': 7, 'completion_tokens': 3}
            answer = {'choices': [choice], 'usage': usage}
        text = answer['raw'] if 'raw' in answer else json.dumps(answer)
        self.send_response(status)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format, *args):
        pass


@contextlib.contextmanager
def served(*script):
    """Serve on a free port; `script` says how the first requests are answered."""
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Chat)
    server.script, server.requests = list(script), []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def spec(server, **fields):
    """Return the specification of a client of `server`."""
    url = f'http://127.0.0.1:{server.server_address[1]}/v1/'
    return EndpointSpec(**{'url': url, 'model': 'm', 'timeout_seconds': 5.0} | fields)
