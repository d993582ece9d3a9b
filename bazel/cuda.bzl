"""cuda_library: .cu files compiled by nvcc, a dep of cc_library, cc_binary and cc_test."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_NVCC = "/usr/local/cuda/bin/nvcc"

# As target_compatible_with: what needs CUDA is built under --config=cuda, and skipped else.
NEEDS_CUDA = select({
    "//bazel:cuda": [],
    "//conditions:default": ["//bazel:has_cuda"],
})

def _archs(ctx):
    """nvcc's flags for --define=cuda_archs=80,90a: 80 is code of compute capability 8.0 and, for newer GPUs, PTX."""
    code = {"80": "[sm_80,compute_80]", "90a": "sm_90a"}
    archs = ctx.var.get("cuda_archs", "90a").split(",")
    for arch in archs:
        if arch not in code:
            fail("--define=cuda_archs: kernels have forms for 80 and 90a, not for '%s'" % arch)
    flags = ["-gencode=arch=compute_%s,code=%s" % (arch, code[arch]) for arch in archs]

    # What Hopper's form alone calls.
    return flags + (["-diag-suppress=177"] if "80" in archs else [])

def _cuda_library_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    own = cc_common.create_compilation_context(headers = depset(ctx.files.hdrs))
    deps = [d[CcInfo] for d in ctx.attr.deps]
    compilation = cc_common.merge_cc_infos(
        cc_infos = [CcInfo(compilation_context = own)] + deps,
    ).compilation_context
    optimise = {"opt": ["-O3", "-lineinfo"], "dbg": ["-O0", "-g"], "fastbuild": ["-O2"]}[ctx.var["COMPILATION_MODE"]]
    objects = []
    for src in ctx.files.srcs:
        obj = ctx.actions.declare_file("_objs/%s/%s.pic.o" % (ctx.label.name, src.basename))
        args = ctx.actions.args()
        args.add_all(["-ccbin", cc_toolchain.compiler_executable, "-std=c++20"])
        args.add_all(["-Xcompiler", "-fPIC,-Wall,-Wextra,-Wno-missing-field-initializers"])
        args.add_all(optimise)
        args.add_all(["--expt-relaxed-constexpr", "--compress-mode=size"])
        args.add_all(_archs(ctx))
        args.add_all(["-I", "."])
        args.add_all(compilation.defines, format_each = "-D%s")
        args.add_all(compilation.includes, before_each = "-I")
        args.add_all(compilation.quote_includes, before_each = "-I")
        args.add_all(compilation.system_includes, before_each = "-isystem")
        args.add_all(ctx.attr.copts)
        args.add_all(["-c", src, "-o", obj])
        ctx.actions.run(
            executable = _NVCC,
            arguments = [args],
            inputs = depset([src] + ctx.files.hdrs, transitive = [compilation.headers, cc_toolchain.all_files]),
            outputs = [obj],
            env = {"PATH": "/usr/local/cuda/bin:/usr/bin:/bin", "TMPDIR": "/tmp"},
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s with nvcc" % src.short_path,
        )
        objects.append(obj)
    linking, _ = cc_common.create_linking_context_from_compilation_outputs(
        name = ctx.label.name,
        actions = ctx.actions,
        feature_configuration = features,
        cc_toolchain = cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        linking_contexts = [d.linking_context for d in deps],
        disallow_dynamic_library = True,
    )
    return [
        DefaultInfo(files = depset(objects)),
        CcInfo(compilation_context = compilation, linking_context = linking),
    ]

_cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)

def cuda_library(name, **kwargs):
    _cuda_library(name = name, target_compatible_with = NEEDS_CUDA, **kwargs)

def _headers_of_impl(ctx):
    merged = cc_common.merge_cc_infos(cc_infos = [d[CcInfo] for d in ctx.attr.deps])
    return [CcInfo(compilation_context = merged.compilation_context)]

# What `deps` declare without what they define: for who links a shared library that has it.
headers_of = rule(
    implementation = _headers_of_impl,
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
)

def _linked_only_impl(ctx):
    return [CcInfo(linking_context = ctx.attr.dep[CcInfo].linking_context)]

# What `dep` defines without what it declares: who depends on this is compiled without its include paths, and so as without CUDA.
linked_only = rule(
    implementation = _linked_only_impl,
    attrs = {"dep": attr.label(providers = [CcInfo])},
)
