from advisor.testing.bench.hedge import run

if __name__ == "__main__":
    from benchmarks.__main__ import write

    write("hedge", run(tell=lambda _: None))
