from advisor.testing.bench.simulate import run

if __name__ == "__main__":
    from benchmarks.__main__ import write

    write("simulate", run(tell=print))
