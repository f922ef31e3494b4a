from advisor.testing.bench.retrain import run

if __name__ == "__main__":
    from benchmarks.__main__ import write

    write("retrain", run(tell=print))
