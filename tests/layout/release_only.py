"""Compares the tests of the release build, those of a sanitizer's build, and tests/release_only.txt.

    release_only.py SOURCE_DIR BUILD_DIR CMAKE
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def tests_of(ctest, folder):
    listing = subprocess.run([ctest, "--test-dir", folder, "-N"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"^ *Test +#\d+: (\S+)", listing, re.MULTILINE))


def main():
    source, build, cmake = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    ctest = str(pathlib.Path(cmake).with_name("ctest"))
    named, mistakes = {}, []
    for number, line in enumerate((source / "tests/release_only.txt").read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, _, reason = line.partition(" ")
        if not reason.strip():
            mistakes.append(f"line {number}: {name} has no reason")
        if name in named:
            mistakes.append(f"line {number}: {name} is named twice")
        named[name] = reason.strip()

    release = tests_of(ctest, build)
    with tempfile.TemporaryDirectory() as folder:
        # Configured, not built: g++ does.
        subprocess.run([cmake, "-S", source, "-B", folder, "-G", "Ninja", "-DTROUPE_SANITIZE=address,undefined"], check=True,
                       stdout=subprocess.DEVNULL)
        sanitized = tests_of(ctest, folder)

    # A folder of tests: all that belongs to it. `docs_` stands for docs_links, docs_walk_README, ...
    def is_named(test):
        return test in named or any(name.endswith("_") and test.startswith(name) for name in named)

    mistakes += [f"{test} runs in neither build: it is in no `ctest -N`" for test in sorted(named)
                 if not any(test == one or test.endswith("_") and one.startswith(test) for one in release)]
    mistakes += [f"{test} runs under the sanitizers alone" for test in sorted(sanitized - release)]
    mistakes += [f"{test} is missing under the sanitizers, and in tests/release_only.txt" for test in
                 sorted(release - sanitized) if not is_named(test)]
    mistakes += [f"{test} runs under the sanitizers: take it out of tests/release_only.txt" for test in sorted(sanitized)
                 if is_named(test)]
    # A test that no build compiles.
    lists = "\n".join(path.read_text() for path in source.glob("tests/**/CMakeLists.txt"))
    for file in sorted(source.glob("tests/**/*_test.*")):
        if file.suffix in (".cpp", ".py", ".sh") and file.name not in lists:
            mistakes.append(f"{file.relative_to(source)} is in no CMakeLists.txt")
    for mistake in mistakes:
        print(mistake)
    print(f"{len(release)} tests in the release build, {len(sanitized)} under the sanitizers")
    return bool(mistakes)


sys.exit(main())
