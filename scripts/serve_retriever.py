"""Serve a corpus over HTTP with BM25, in both request shapes.

  python scripts/serve_retriever.py --corpus corpus.jsonl --port 8000

`POST /retrieve` takes {"queries": [...], "topk": k, "return_scores": bool} or
{"questions": [...], "N": k}; `GET /health` says ok. With `--port 0` the system chooses
a port. The address is printed once the server listens. SIGTERM and SIGINT let the
requests under way finish and exit with 0.
"""

import argparse
import http.server
import json
import os
import signal
import sys
import threading

from unimas_jax.data.corpora import ParagraphCorpus
from unimas_jax.specs import SpecError
from unimas_jax.tools import retrieval_api
from unimas_jax.tools.bm25 import Bm25Index
from unimas_jax.tools.passages import JsonlCorpus

CORPORA = {'documents': JsonlCorpus, 'hotpotqa': ParagraphCorpus}
MAX_BODY_BYTES = 16 * 2**20


class Server(http.server.ThreadingHTTPServer):
    """One thread for each request; closing waits for them."""

    daemon_threads = False
    request_queue_size = 512

    def __init__(self, address: tuple[str, int], index: Bm25Index):
        """Listen at `address`, search in `index`."""
        super().__init__(address, Handler)
        self.index = index

    def handle_error(self, request: object, client_address: object) -> None:
        """Say in one line that a client went away."""
        print(f'request of {client_address}: {sys.exc_info()[1]!r}', file=sys.stderr)


class Handler(http.server.BaseHTTPRequestHandler):
    """One request on one connection."""

    server: Server
    timeout = 30

    def do_GET(self) -> None:
        """Answer a health check."""
        if self.path == '/health':
            self._send(200, {'status': 'ok'})
        else:
            self._send(404, {'detail': 'use POST /retrieve or GET /health'})

    def do_POST(self) -> None:
        """Answer a search."""
        length = self.headers.get('Content-Length', '')
        if self.path != '/retrieve':
            self._send(404, {'detail': 'use POST /retrieve or GET /health'})
        elif not length.isdigit() or int(length) > MAX_BODY_BYTES:
            self._send(413, {'detail': f'send at most {MAX_BODY_BYTES} bytes'})
        else:
            try:
                request = json.loads(self.rfile.read(int(length)))
                answer = retrieval_api.answer(request, self.server.index.search)
            except ValueError as error:
                self._send(422, {'detail': str(error)})
            else:
                self._send(200, answer)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet about requests that went well."""

    def _send(self, status: int, answer: object) -> None:
        body = json.dumps(answer, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> int:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--corpus', action='append', required=True, help='JSONL file')
    parser.add_argument('--format', choices=sorted(CORPORA), default='documents')
    parser.add_argument('--host', default='127.0.0.1')
    parser.add_argument('--port', type=int, default=8000)
    args = parser.parse_args()
    try:
        corpus = CORPORA[args.format](files=tuple(args.corpus)).passages(os.getcwd())
        server = Server((args.host, args.port), Bm25Index(corpus))
    except (SpecError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1

    def stop(number: int, frame: object) -> None:
        # `shutdown` waits for the serving loop, which runs in this very thread.
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    host, port = server.server_address[:2]
    print(f'http://{host}:{port}/retrieve', flush=True)
    with server:
        server.serve_forever(poll_interval=0.05)
    return 0


if __name__ == '__main__':
    sys.exit(main())
