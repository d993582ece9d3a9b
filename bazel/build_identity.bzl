"""build_identity: a header that says of which sources a program or a library was built."""

_Sources = provider(fields = ["files"])

def _sources_impl(_target, ctx):
    own = [
        f
        for name in ("srcs", "hdrs")
        for t in getattr(ctx.rule.attr, name, [])
        for f in t.files.to_list()
        if f.is_source
    ]
    deps = [d[_Sources].files for d in getattr(ctx.rule.attr, "deps", []) if _Sources in d]
    return [_Sources(files = depset(own, transitive = deps))]

_sources = aspect(implementation = _sources_impl, attr_aspects = ["deps"])

def _build_identity_impl(ctx):
    sources = depset(transitive = [d[_Sources].files for d in ctx.attr.deps])
    args = ctx.actions.args()
    args.add_all([ctx.outputs.out, ctx.var["COMPILATION_MODE"]])
    args.add_all(sources)
    ctx.actions.run_shell(
        inputs = sources,
        outputs = [ctx.outputs.out],
        arguments = [args],
        # SKEIN_PACKAGES: the versions of the compiler and of the libraries whose types are shared.
        command = """
out=$1 mode=$2; shift 2
hash=$( { echo "$mode $SKEIN_PACKAGES"; sha256sum "$@"; } | sha256sum | cut -c1-12)
printf '#pragma once\\n\\ninline constexpr char kBuildIdentity[] = "%s";\\n' "$hash" >"$out"
""",
        use_default_shell_env = True,
        mnemonic = "BuildIdentity",
    )

# `out` defines kBuildIdentity, of all sources that `deps` are made of, the compilation mode and the
# versions of the system's packages.
build_identity = rule(
    implementation = _build_identity_impl,
    attrs = {
        "out": attr.output(mandatory = True),
        "deps": attr.label_list(aspects = [_sources]),
    },
)
