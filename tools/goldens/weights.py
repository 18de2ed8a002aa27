"""Makes random weights for golden checkpoints. Each is exact in bfloat16, and each affects the logits."""

import torch


def spread(model, generator):
    """Gives every parameter values that affect the logits, so that a weight which is ignored or read wrongly is noticed."""
    head = model.get_output_embeddings()  # models that pool have no head
    tied = head is not None and head.weight is model.get_input_embeddings().weight
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            parameter.data = parameter.data + 0.2 * noise
        elif "per_layer" in name and "embed" in name:
            parameter.data = 0.3 * noise
        elif "embed_tokens" in name:
            parameter.data = (0.2 if tied else 0.02) * noise  # a tied embedding also computes the logits
        else:
            parameter.data = 0.6 * noise / parameter[0].numel() ** 0.5
    for name, buffer in model.named_buffers():
        if "e_score_correction_bias" in name:
            buffer.copy_((0.1 * torch.randn(buffer.shape, generator=generator)).bfloat16().float())
        if "layer_scalar" in name:
            buffer.copy_((1 - 0.3 * torch.rand(buffer.shape, generator=generator)).bfloat16().float())


def calm(model):
    """Makes keys similar to queries, and routers decide clearly. Otherwise rounding to bfloat16 changes the sign of q·k
    or the choice of an expert in many rows, and so changes logits by 10 to 30 %. With this function, rounding changes
    logits by about 2 %."""
    config = model.config.get_text_config()
    for name, parameter in model.named_parameters():
        if "visual" in name or "vision" in name:
            continue
        if name.endswith(("linear_attn.in_proj_qkv.weight", "linear_attn.in_proj_qkvz.weight", "linear_attn.conv1d.weight")):
            keys = config.linear_num_key_heads * config.linear_key_head_dim
            if name.endswith("qkvz.weight"):  # each key head has a group of rows, which begins with queries and keys
                groups = parameter.data.view(config.linear_num_key_heads, -1, parameter.shape[1])
                size = config.linear_key_head_dim
                groups[:, size:2 * size] = 0.9 * groups[:, :size] + 0.44 * groups[:, size:2 * size]
            else:
                parameter.data[keys:2 * keys] = 0.9 * parameter.data[:keys] + 0.44 * parameter.data[keys:2 * keys]
        if config.model_type == "gemma4_text" and name.endswith(("q_norm.weight", "k_norm.weight")):
            parameter.data *= 0.45
        if config.model_type in ("llama", "qwen3") and config.head_dim == 128:
            # Averages over 1 500 tokens are small, so that rounded scores would change the logits by up to 5 %.
            normed = config.model_type == "qwen3"
            if name.endswith("q_norm.weight" if normed else "q_proj.weight"):
                parameter.data *= 0.5
        if name.endswith(("router.proj.weight", "mlp.gate.weight", "mlp.router.weight", "block_sparse_moe.gate.weight")):
            parameter.data *= 3


def random_model(make, seed):
    """Returns a float32 model whose parameters are exact in bfloat16, and the random generator for its prompts."""
    torch.manual_seed(seed)
    model = make().eval().float()
    generator = torch.Generator().manual_seed(seed + 1)
    spread(model, generator)
    calm(model)
    for parameter in model.parameters():  # buffers such as frequencies stay as they are
        parameter.data = parameter.data.bfloat16().float()
    model.config.dtype = "bfloat16"
    model.set_attn_implementation("eager")
    return model, generator


def narrow(model):
    """Converts the model to the types of published checkpoints: bfloat16, but float32 for some weights of Qwen3.5."""
    model.to(torch.bfloat16)
    if hasattr(model, "published_config"):
        for name, parameter in model.named_parameters():
            if name.endswith(("A_log", "linear_attn.norm.weight")):
                parameter.data = parameter.data.float()
