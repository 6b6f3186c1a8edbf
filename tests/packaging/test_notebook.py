"""A real notebook kernel shows a live module and a recording; installed for this test alone."""

import subprocess
import sys
import sysconfig

import pytest

KERNEL = ("nbclient==0.11.0", "ipykernel==7.4.0")
pytestmark = pytest.mark.exhaustive

CELLS = {
    "relax": """
import tvm
from tvm import relax
x, w = (relax.Var(n, relax.TensorType((8, 8), "float32")) for n in "xw")
build = relax.BlockBuilder()
with build.function("main", [x, w]):
    build.emit_func_output(build.emit(relax.op.nn.relu(relax.op.matmul(x, w))))
mod = build.finalize()
compiled = lambda: relax.build(mod, tvm.target.Target({"kind": "llvm"}))
""",
    "relay": """
from relascope.engine.relay.tvm.boot import boot
boot()
import tvm
from tvm import relay
x, w = (relay.var(n, shape=(8, 8)) for n in "xw")
mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
compiled = lambda: relay.build(mod, "llvm")
""",
}
SHOWN = """
import relascope
relascope.show(mod)
"""
RECORDED = """
with relascope.recording("run.rsc", "graphs"):
    compiled()
relascope.show("run.rsc")
"""
CLIENT = """
import sys
import nbformat
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(text) for text in sys.argv[1:]]
book = nbformat.v4.new_notebook(cells=cells)
NotebookClient(book, timeout=300).execute()
for cell in book.cells:
    for made in cell.outputs:
        if made.output_type == "execute_result":
            html = made.data["text/html"]
            print(made.data["text/plain"], html.startswith("<iframe srcdoc="), len(html) > 50_000)
"""


@pytest.mark.engine
@pytest.mark.parametrize("ir", CELLS)
def test_a_kernel_shows_a_live_module_and_its_recorded_compile(ir, tmp_path):
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    python = str(place / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *KERNEL], check=True)
    ours = sysconfig.get_path("purelib")
    reached = f"import site; site.addsitedir({ours!r})"
    (theirs,) = (place / "lib").glob("python*/site-packages")
    (theirs / "ours.pth").write_text(f"{reached}\n")
    done = subprocess.run(
        [python, "-c", CLIENT, CELLS[ir] + SHOWN, RECORDED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    graph, recording = done.stdout.splitlines()
    assert graph.startswith(f"<relascope graph 'main' ({ir}), 4 nodes")
    assert recording.startswith("<relascope recording 'run.rsc', ")
    assert graph.endswith("True True") and recording.endswith("True True")
