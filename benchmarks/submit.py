from advisor.testing.bench.submit import run

if __name__ == "__main__":
    from benchmarks.__main__ import write

    write("submit", run(tell=print))
