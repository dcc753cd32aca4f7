"""A server with the routes of vLLM and SGLang for token ids and LoRA adapters, answering by plain transformers and peft."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from fedse.models.causal_lm import CausalLM


class StandIn:
    """Use as a context manager. It knows only what is posted to it, and reads adapters from the folders it is told."""

    def __init__(self, model: CausalLM, *, loads: bool = True) -> None:
        base = model.network.get_base_model()
        # A copy without the adapter that the policy's own model holds.
        self._base = type(base)(base.config).eval()
        taken = {
            name.replace(".base_layer", ""): value for name, value in base.state_dict().items() if "lora_" not in name
        }
        self._base.load_state_dict(taken)
        self._peft: Any = None
        self._known: set[str] = set()
        self._loads = loads
        self._lock = threading.Lock()
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        routes = {
            "/v1/load_lora_adapter": self._load,
            "/load_lora_adapter": self._load,
            "/v1/unload_lora_adapter": self._unload,
            "/unload_lora_adapter": self._unload,
            "/v1/completions": self._completions,
            "/generate": self._generate,
        }

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(handler) -> None:  # noqa: N805
                body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                with self._lock:
                    self.bodies.append((handler.path, body))
                    status, answer = routes.get(handler.path, lambda _: (404, {"detail": "Not Found"}))(body)
                content = json.dumps(answer).encode()
                handler.send_response(status)
                handler.send_header("Content-Type", "application/json")
                handler.send_header("Content-Length", str(len(content)))
                handler.end_headers()
                handler.wfile.write(content)

            def log_message(handler, *_: object) -> None:  # noqa: N805
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> StandIn:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def known(self) -> set[str]:
        return set(self._known)

    def _load(self, body: dict[str, Any]) -> tuple[int, Any]:
        if not self._loads:
            return 200, {"success": False, "error_message": "LoRA is not enabled."}
        name, folder = body["lora_name"], body["lora_path"]
        if not (Path(folder) / "adapter_config.json").is_file():
            return 404, {"error": {"message": "no such adapter", "type": "NotFoundError"}}
        if self._peft is None:
            self._peft = PeftModel.from_pretrained(self._base, folder, adapter_name=name)
        else:
            self._peft.load_adapter(folder, adapter_name=name)
        self._known.add(name)
        return 200, {"success": True}

    def _unload(self, body: dict[str, Any]) -> tuple[int, Any]:
        self._known.remove(body["lora_name"])
        return 200, {"success": True}

    def _draw(self, name: str, ids: list[int], most: int, temperature: float, seed: int, ends: list[int]) -> list[Any]:
        assert name in self._known
        self._peft.set_adapter(name)
        self._peft.eval()
        random, drawn = torch.Generator().manual_seed(seed), []
        with torch.inference_mode():
            for _ in range(most):
                logits = self._peft(input_ids=torch.tensor([ids])).logits[0, -1].float()
                logs = logits.log_softmax(-1)
                if temperature == 0:
                    token = int(logits.argmax())
                else:
                    token = int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=random))
                drawn.append((float(logs[token]), token))
                ids = [*ids, token]
                if token in ends:
                    break
        return drawn

    def _completions(self, body: dict[str, Any]) -> tuple[int, Any]:
        asked = (body["prompt"], body["max_tokens"], body["temperature"], body["seed"], body["stop_token_ids"])
        drawn = self._draw(body["model"], *asked)
        choice = {
            "index": 0,
            "text": "",
            "finish_reason": "stop" if drawn[-1][1] in body["stop_token_ids"] else "length",
            "logprobs": {"token_logprobs": [one[0] for one in drawn]},
            "token_ids": [one[1] for one in drawn] if body.get("return_token_ids") else None,
        }
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(drawn)}
        return 200, {"object": "text_completion", "choices": [choice], "usage": usage}

    def _generate(self, body: dict[str, Any]) -> tuple[int, Any]:
        how = body["sampling_params"]
        asked = (how["max_new_tokens"], how["temperature"], how["sampling_seed"], how["stop_token_ids"])
        drawn = self._draw(body["lora_path"], body["input_ids"], *asked)
        told = {
            "finish_reason": {"type": "stop"},
            "output_token_logprobs": [[one[0], one[1], None] for one in drawn],
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": len(drawn),
            "cached_tokens": 3,
        }
        return 200, {"text": "", "output_ids": [one[1] for one in drawn], "meta_info": told}
