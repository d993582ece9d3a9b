#include "base/flags/completion.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/flags/definitions.h"

namespace skein {
namespace {

// bash and zsh: NAME_at sets what the command of its argument has.
constexpr char kBash[] = R"(
_NAME() {
  local command=NAME flag='' commands flags valued values word ended='' i
  local current=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  _NAME_at NAME
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == = ]]; then
      :
    elif [[ -n $flag ]]; then
      flag=''
    elif [[ $word == -- ]]; then
      ended=1
    elif [[ " $valued " == *" $word "* ]]; then
      flag=$word
    elif [[ " $commands " == *" $word "* ]]; then
      command+=" $word"
      _NAME_at "$command"
    fi
  done
  [[ -z $ended ]] || return 0
  [[ $current != = ]] || current=''
  if [[ -n $flag ]]; then
    _NAME_values "$command $flag"
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  fi
}
complete -o default -F _NAME NAME
)";

constexpr char kZsh[] = R"(
_NAME() {
  local command=NAME flag='' commands flags valued values word i
  _NAME_at NAME
  for ((i = 2; i < CURRENT; ++i)); do
    word=${words[i]}
    if [[ -n $flag ]]; then
      flag=''
    elif [[ $word == -- ]]; then
      _files
      return
    elif [[ " $valued " == *" $word "* ]]; then
      flag=$word
    elif [[ " $commands " == *" $word "* ]]; then
      command+=" $word"
      _NAME_at "$command"
    fi
  done
  if [[ -z $flag && $PREFIX == --*=* ]]; then
    flag=${PREFIX%%=*}
    compset -P '*='
  fi
  if [[ -n $flag ]]; then
    _NAME_values "$command $flag"
    if [[ -n $values ]]; then compadd -- ${=values}; else _files; fi
  elif [[ $PREFIX == -* ]]; then
    compadd -- ${=flags}
  elif [[ -n $commands ]]; then
    compadd -- ${=commands}
  else
    _files
  fi
}
_NAME "$@"
)";

constexpr char kFish[] = R"(
function __NAME_at
    set -l command NAME
    set -l words (commandline -opc)
    for word in $words[2..-1]
        if contains -- "$command $word" $__NAME_commands
            set command "$command $word"
        end
    end
    test "$command" = "$argv"
end
)";

std::string ForProgram(const char* text, const std::string& name) {
  return absl::StrReplaceAll(text, {{"NAME", name}});
}

std::vector<std::string> NamesOf(const std::vector<CLI::App*>& commands) {
  std::vector<std::string> names;
  names.reserve(commands.size());
  for (const CLI::App* const command : commands) names.push_back(command->get_name());
  return names;
}

// A command and all below it.
void Collect(CLI::App& command, std::vector<CLI::App*>& all) {
  all.push_back(&command);
  for (CLI::App* const sub : CommandsOf(command)) Collect(*sub, all);
}

std::vector<std::string> LongNames(CLI::App& command, bool valued_only) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : ShownOptionsOf(command)) {
    if (valued_only && IsSwitch(*option)) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// _NAME_at and _NAME_values, for bash and zsh.
std::string Tables(CLI::App& program, const std::vector<CLI::App*>& all) {
  const std::string name = program.get_name();
  std::string text = absl::StrCat("_", name, "_at() {\n  case $1 in\n");
  std::string values;
  for (CLI::App* const command : all) {
    const std::string path = PathOf(*command);
    absl::StrAppend(&text, "    '", path, "')\n      commands='",
                    absl::StrJoin(NamesOf(CommandsOf(*command)), " "), "'\n      flags='",
                    absl::StrJoin(LongNames(*command, /*valued_only=*/false), " "),
                    "'\n      valued='",
                    absl::StrJoin(LongNames(*command, /*valued_only=*/true), " "), "'\n      ;;\n");
    for (const CLI::Option* const option : ShownOptionsOf(*command)) {
      const std::vector<std::string> choices = ChoicesOf(*option);
      if (choices.empty() || option->get_lnames().empty()) continue;
      absl::StrAppend(&values, "    '", path, " --", option->get_lnames()[0], "') values='",
                      absl::StrJoin(choices, " "), "' ;;\n");
    }
  }
  absl::StrAppend(&text, "  esac\n}\n_", name, "_values() {\n  values=''\n  case $1 in\n", values,
                  "    *) ;;\n  esac\n}\n");
  return text;
}

// Between single quotes.
std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}, {"\n", " "}}),
                      "'");
}

std::string FishScript(CLI::App& program, const std::vector<CLI::App*>& all) {
  const std::string name = program.get_name();
  std::vector<std::string> paths;
  std::string lines;
  for (CLI::App* const command : all) {
    paths.push_back(FishQuoted(PathOf(*command)));
    const std::string at =
        absl::StrCat("complete -c ", name, " -n ",
                     FishQuoted(absl::StrCat("__", name, "_at ", PathOf(*command))));
    for (const CLI::App* const sub : CommandsOf(*command)) {
      absl::StrAppend(&lines, at, " -f -a ", sub->get_name(), " -d ",
                      FishQuoted(sub->get_description()), "\n");
    }
    for (const CLI::Option* const option : ShownOptionsOf(*command)) {
      const std::string choices = absl::StrJoin(ChoicesOf(*option), " ");
      for (const std::string& flag : option->get_lnames()) {
        absl::StrAppend(&lines, at, " -l ", flag);
        if (!IsSwitch(*option))
          lines += choices.empty() ? " -r -F" : " -x -a " + FishQuoted(choices);
        absl::StrAppend(&lines, " -d ", FishQuoted(option->get_description()), "\n");
      }
    }
  }
  return absl::StrCat("set -g __", name, "_commands ", absl::StrJoin(paths, " "),
                      ForProgram(kFish, name), lines);
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(CLI::App& program, const std::string& shell) {
  const std::string name = program.get_name();
  std::vector<CLI::App*> all;
  Collect(program, all);
  const std::string made = absl::StrCat("# Completion of ", name, "; made by `", name,
                                        " --help-completion ", shell, "`.\n");
  if (shell == "bash") return absl::StrCat(made, Tables(program, all), ForProgram(kBash, name));
  if (shell == "zsh") {
    return absl::StrCat("#compdef ", name, "\n", made, Tables(program, all),
                        ForProgram(kZsh, name));
  }
  if (shell == "fish") return absl::StrCat(made, FishScript(program, all));
  return absl::InvalidArgumentError(absl::StrCat("must be bash, zsh or fish, not '", shell, "'"));
}

}  // namespace skein
