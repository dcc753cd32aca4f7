"""What the fence of a hub lets through, as nginx reads it."""

from __future__ import annotations

from pathlib import Path

from fedse.apps.hub_options import HubOptions

ROUTES: tuple[str, ...] = (
    "activate-node",
    "confirm-message-received",
    "deactivate-node",
    "get-fab",
    "get-run",
    "pull-messages",
    "pull-object",
    "push-messages",
    "push-object",
    "register-node",
    "send-node-heartbeat",
)
"""Of Flower's server, under /v1/fleet/: what a site asks for. To register is refused by the server of a hub with
keys, in words that a site without one understands."""
WITHOUT_KEYS = ("unregister-node",)
"""What a site without a key asks for besides."""


def nginx_configuration(path: Path, options: HubOptions) -> str:
    """Of Flower's routes only those of the sites can be reached from outside, spelled exactly as Flower spells them."""
    host, port = options.listens_at
    routes = ROUTES
    if options.insecure:
        signed = "THIS HUB IS INSECURE: it has no TLS and no keys, so anybody who reaches it may come in as a site."
        routes += WITHOUT_KEYS
        listen, onward = f"listen {host}:{port};", "proxy_pass http://flower$route;"
    else:
        signed = "Their requests are signed with their keys."
        listen = f"""listen {host}:{port} ssl;
        ssl_certificate {path}/certificates/server.crt;
        ssl_certificate_key {path}/certificates/server.key;
        ssl_protocols TLSv1.2 TLSv1.3;"""
        onward = f"""proxy_pass https://flower$route;
            proxy_ssl_trusted_certificate {path}/certificates/ca.crt;
            proxy_ssl_verify on;
            proxy_ssl_name localhost;"""
    return f"""# The fence of the hub. Flower's server has NO LOGIN on its control routes: whoever reaches them can run
# code at the hub. It listens on this machine only, and this proxy passes on nothing but the routes of the sites.
# {signed}
# `fedse hub run` and `fedse hub open` write this file and start nginx with it.
pid {path}/nginx.pid;
error_log {path}/nginx-error.log;
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {path}/nginx-temp/body;
    proxy_temp_path {path}/nginx-temp/proxy;
    fastcgi_temp_path {path}/nginx-temp/fastcgi;
    uwsgi_temp_path {path}/nginx-temp/uwsgi;
    scgi_temp_path {path}/nginx-temp/scgi;
    # Flower cuts adapters into pieces of 5 MB.
    client_max_body_size 64m;
    upstream flower {{
        server 127.0.0.1:{options.port};
        keepalive 64;
        # Shorter than the 5 s after which Flower's server closes a line: nothing is sent into a line that is being closed.
        keepalive_timeout 3s;
    }}
    # What came over the wire, letter by letter: no dots, slashes, encoded signs or questions can lead to another route.
    map $request_uri $route {{
        default "";
        "~^/v1/fleet/(?:{"|".join(sorted(routes))})$" $request_uri;
    }}
    server {{
        {listen}
        if ($route = "") {{ return 403; }}
        if ($request_method != POST) {{ return 403; }}
        location / {{
            # What was looked at is what is passed on.
            {onward}
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_read_timeout 120s;
            # Nothing of the sites is written to the proxy's disk.
            proxy_request_buffering off;
            proxy_buffering off;
        }}
    }}
}}
"""
