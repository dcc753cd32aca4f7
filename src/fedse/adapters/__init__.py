"""LoRA tensors: packed for the wire, in files that PEFT and vLLM read, and inside a running model."""
