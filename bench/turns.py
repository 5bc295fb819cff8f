"""Runs the programs that are compared: shell commands that print a JSON line with "images_per_second"."""

import json
import os
import signal
import subprocess
import sys


def measure(tool, name, command, deadline):
    """The last such line that `command` prints. Ends the program `tool`, with a line that says why, where there is none."""
    # A session of its own, so that at the deadline everything that the shell started ends with it.
    run = subprocess.Popen(command, shell=True, text=True, stdout=subprocess.PIPE, start_new_session=True)
    try:
        output, _ = run.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        sys.exit(f"{tool}: {name} did not end within {deadline:g} s: {command}")
    if run.returncode != 0:
        sys.exit(f"{tool}: {name} ended with exit code {run.returncode}: {command}")
    for line in reversed(output.splitlines()):
        try:
            result = json.loads(line)
            result["images_per_second"] = float(result["images_per_second"])
        except (ValueError, TypeError, KeyError):
            continue
        if result["images_per_second"] > 0:
            return result
    sys.exit(f'{tool}: {name} printed no JSON line with a positive "images_per_second": {command}')
