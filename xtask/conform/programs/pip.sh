# A virtual environment, and a package that pip installs, checks and removes.
. "$DATA/lib.sh"
modules=$((50 * SCALE))
unset PIP_FIND_LINKS PYTHONPATH
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CACHE_DIR="$PWD/cache" PIP_ROOT_USER_ACTION=ignore
mkdir tree
python3 - "$modules" <<'END'
import sys, zipfile
name, modules = "conform_package-1.0.dist-info", int(sys.argv[1])
files = {f"conform_package/module{i}.py": f"value = {i}\n" for i in range(modules)}
files["conform_package/__init__.py"] = (
    "import importlib, pathlib\n"
    "def total():\n"
    "    names = (p.stem for p in pathlib.Path(__file__).parent.glob('module*.py'))\n"
    "    return sum(importlib.import_module(f'{__name__}.{n}').value for n in names)\n"
)
files[f"{name}/METADATA"] = "Metadata-Version: 2.1\nName: conform-package\nVersion: 1.0\n"
files[f"{name}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: conform\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
record = "".join(f"{path},,\n" for path in [*files, f"{name}/RECORD"])
with zipfile.ZipFile("conform_package-1.0-py3-none-any.whl", "w") as wheel:
    for path, text in {**files, f"{name}/RECORD": record}.items():
        wheel.writestr(zipfile.ZipInfo(path, (2001, 1, 1, 0, 0, 0)), text)
END
python3 -m venv environment
environment/bin/python -m pip install -q --no-compile ./conform_package-1.0-py3-none-any.whl
total() { environment/bin/python -B -c 'import conform_package; print(conform_package.total())'; }
expect 'the total' "$(total)" $((modules * (modules - 1) / 2))
environment/bin/python -m pip check
cp -a environment/lib/python3*/site-packages/conform_package tree/
environment/bin/python -m compileall -q environment/lib/python3*/site-packages/conform_package
expect 'the total of compiled modules' "$(total)" $((modules * (modules - 1) / 2))
environment/bin/python -m pip uninstall -q -y conform-package
[ ! -e environment/lib/python3*/site-packages/conform_package ] || fail 'pip left something'
