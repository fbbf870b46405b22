"""Short names of machines that tell them apart, from what benchmarks/record.py keeps of them."""
import re

# By family and model of the processor, or by family alone; virtual machines do not say more.
PROCESSORS = {("25", "1"): "EPYC Zen 3", ("25", "17"): "EPYC Zen 4", ("26", ""): "EPYC Zen 5", ("6", "143"): "Xeon Sapphire Rapids",
              ("6", "173"): "Xeon Granite Rapids", ("6", "207"): "Xeon Emerald Rapids"}
INSTRUCTIONS = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": "AVX-512", "amx_bf16": "AMX"}


def machine_name(machine):
    """The GPU, or the processor's design with its best instructions: "EPYC Zen 4 (AVX-512)". An unknown one as it calls itself."""
    if "gpu" in machine:
        return machine["gpu"].split(",")[0].removeprefix("NVIDIA ")
    plain = " ".join(re.sub(r"\(R\)|\(TM\)|\bProcessor\b", "", machine["processor"]).split())
    name = (PROCESSORS.get((machine["family"], machine["model"])) or PROCESSORS.get((machine["family"], ""))
            or f"{plain} family {machine['family']} model {machine['model']}")
    best = machine["instructions"][-1] if machine["instructions"] else ""
    return f"{name} ({INSTRUCTIONS.get(best, best)})" if best else name


def machine_names(machines):
    """One name for each; machines that share one are numbered in their order."""
    plain = [machine_name(machine) for machine in machines]
    return [name if plain.count(name) == 1 else f"{name}, no. {plain[:place + 1].count(name)}" for place, name in enumerate(plain)]
