from advisor.testing.bench.knn import run

if __name__ == "__main__":
    from benchmarks.__main__ import write

    write("knn", run(tell=print))
