"""Kubeflow Trainer's status server as a job sees it: prints each POST as a line of JSON.

  kubeflow_server.py CERTIFICATE KEY ANSWER    the first line that it prints is its port; ANSWER is the HTTP status
"""

import http.server
import json
import ssl
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print(json.dumps({"path": self.path, "authorization": self.headers["Authorization"], "type": self.headers["Content-Type"],
                          "body": json.loads(body)}), flush=True)
        self.send_response(int(sys.argv[3]))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
