"""mpi_cc_test: a gtest binary that runs under mpirun, once for each number of ranks."""

def mpi_cc_test(name, srcs, deps, ranks, data = [], size = "small", timeout = None, tags = [], env = {}, **kwargs):
    """Makes the binary `name`_bin and a test `name`_np<N> for each N in `ranks`.

    Cases get the process's MpiRuntime from tests/mpi/mpi_test_main.h. A case fails if it fails on
    any rank; rank 0 alone writes the report.
    """
    native.cc_binary(
        name = name + "_bin",
        testonly = 1,
        srcs = srcs,
        data = data,
        deps = deps + ["//tests/mpi:gtest_mpi_main"],
        **kwargs
    )
    for n in ranks:
        native.sh_test(
            name = "%s_np%d" % (name, n),
            size = size,
            timeout = timeout,
            srcs = ["//tests/mpi:run_mpi_test.sh"],
            args = [str(n), "$(rootpath :%s_bin)" % name],
            data = [":%s_bin" % name, "//tests/mpi:mpirun"] + data,
            env = env,
            tags = tags + ["cpu:4"],
        )
