"""How much processor time this program and the ones it started have used: oracles run for that, not for a clock's time."""
import os
import resource


def processor_seconds(*running):
    """`running`: subprocess.Popen objects that still run; ended ones count by themselves."""
    total = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    for process in running:
        try:
            with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (AttributeError, OSError):
            pass
    return total
