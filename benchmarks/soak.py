from advisor.testing.bench.soak import run

if __name__ == "__main__":
    from benchmarks.__main__ import write

    write("soak", run(tell=lambda _: None))
