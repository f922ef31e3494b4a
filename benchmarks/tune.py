from advisor.testing.bench.tune import run

if __name__ == "__main__":
    from benchmarks.__main__ import write

    write("tune", run(tell=print))
