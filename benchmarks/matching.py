from advisor.testing.bench.matching import run

if __name__ == "__main__":
    from benchmarks.__main__ import write

    write("matching", run(tell=lambda _: None))
