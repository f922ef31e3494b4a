from advisor.testing.bench.launch import run

if __name__ == "__main__":
    from benchmarks.__main__ import write

    write("launch", run(tell=print))
