"""LoRA tensors: packed for the wire, and in files that PEFT and vLLM read."""
