"""A model trained for one step and its export, for comparisons with other programs."""
from record import must


def exported_step(program, configs, vocab, tokenizer, inputs, folder, options=()):
    """Returns the step's directory; the export is in folder/export. `vocab`: tokens of `tokenizer`; `inputs`: its training data."""
    must(program, "data", "build", "--input", *inputs, "--tokenizer", tokenizer, "--output", folder / "shards")
    files = [word for config in configs for word in ("--config", config)]
    must(program, "train", *files, "--model.vocab", vocab, "--train.steps", 1, "--train.global_batch", 1, "--train.micro_batch", 1,
         "--train.sequence_length", 64, "--optimizer.schedule", "constant", "--optimizer.warmup", 0, "--checkpoint.every", 1,
         "--data.train", folder / "shards", "--output.directory", folder / "run", *options)
    step = folder / "run" / "checkpoints" / "step-00000001"
    must(program, "checkpoint", "export", step, "--format", "hf", "--output", folder / "export")
    return step
