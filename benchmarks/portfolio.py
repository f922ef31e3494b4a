from advisor.testing.bench.portfolio import run

if __name__ == "__main__":
    from benchmarks.__main__ import write

    write("portfolio", run(tell=print))
