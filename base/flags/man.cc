#include "base/flags/man.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/flags/definitions.h"

namespace skein {
namespace {

// Text that stands for itself: a hyphen that is typed is "\-", and a line that begins with a dot
// would be a macro.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    const bool first = escaped.empty() || escaped.back() == '\n';
    if (first && c == '.') escaped += "\\&";
    switch (c) {
      case '\\':
        escaped += "\\e";
        break;
      case '-':
        escaped += "\\-";
        break;
      case '\'':  // roff makes a typographic one of it
        escaped += "\\(aq";
        break;
      case '`':
        escaped += "\\(ga";
        break;
      case '^':
        escaped += "\\(ha";
        break;
      case '~':
        escaped += "\\(ti";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// An argument of a macro.
std::string Argument(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : Escaped(text)) {
    if (c == '"') {
      quoted += "\\(dq";
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string Bold(const std::string& text) { return absl::StrCat("\\fB", Escaped(text), "\\fR"); }
std::string Italic(const std::string& text) { return absl::StrCat("\\fI", Escaped(text), "\\fR"); }

// With all names: "-h, --help", "--listen HOST:PORT", "MODEL".
std::string Head(const CLI::Option& option) {
  std::string head;
  const auto add = [&](const std::string& name) {
    absl::StrAppend(&head, head.empty() ? "" : ", ", Bold(name));
  };
  for (const std::string& name : option.get_snames()) add("-" + name);
  for (const std::string& name : option.get_lnames()) add("--" + name);
  if (head.empty()) return Italic(option.get_single_name());
  if (!IsSwitch(option)) absl::StrAppend(&head, " ", Italic(option.get_type_name()));
  return head;
}

// What --help says in short words, as a sentence.
std::string Conditions(const CLI::Option& option) {
  std::string text;
  const auto add_others = [&](const char* what, const std::set<CLI::Option*>& others) {
    std::set<std::string> names;  // in an order that does not depend on addresses
    for (const CLI::Option* const other : others) names.insert(Bold(other->get_name()));
    if (!names.empty()) absl::StrAppend(&text, what, absl::StrJoin(names, ", "), ".\n");
  };
  if (option.get_required()) text += "Required.\n";
  if (!IsSwitch(option) && !option.get_default_str().empty()) {
    absl::StrAppend(&text, "Default: ", Escaped(option.get_default_str()), ".\n");
  }
  add_others("Needs ", option.get_needs());
  add_others("Excludes ", option.get_excludes());
  return text;
}

void AppendOptions(CLI::App& command, std::string& page) {
  for (const CLI::Option* const option : ShownOptionsOf(command)) {
    std::string what = option->get_description();
    if (!what.empty() && what.back() != '.') what += '.';
    absl::StrAppend(&page, ".TP\n", Head(*option), "\n", Escaped(what), "\n", Conditions(*option));
  }
}

// As it is written: its lines stay lines.
void AppendFooter(const CLI::App& command, std::string& page) {
  const std::string footer(absl::StripAsciiWhitespace(command.get_footer()));
  if (footer.empty()) return;
  absl::StrAppend(&page, ".PP\n.nf\n", Escaped(footer), "\n.fi\n");
}

void AppendSynopsis(CLI::App& command, std::string& page) {
  absl::StrAppend(&page, Bold(PathOf(command)), " [", Italic("OPTIONS"), "]");
  for (const CLI::Option* const option : ShownOptionsOf(command)) {
    if (!option->get_positional()) continue;
    absl::StrAppend(&page, " ", Italic(option->get_single_name()));
  }
  if (!CommandsOf(command).empty()) {
    const bool must = command.get_require_subcommand_min() > 0;
    absl::StrAppend(&page, must ? " " : " [", Italic("COMMAND"), must ? "" : "]");
  }
  page += "\n";
}

void AppendCommands(CLI::App& command, std::string& page) {
  for (CLI::App* const sub : CommandsOf(command)) {
    absl::StrAppend(&page, ".SS ", Argument(PathOf(*sub)), "\n", Escaped(sub->get_description()),
                    ".\n.PP\n");
    AppendSynopsis(*sub, page);
    AppendOptions(*sub, page);
    AppendFooter(*sub, page);
    AppendCommands(*sub, page);
  }
}

}  // namespace

std::string ManPage(CLI::App& program, const std::string& version, const std::string& date) {
  const std::string name = program.get_name();
  std::string page =
      absl::StrCat(".TH ", absl::AsciiStrToUpper(name), " 1 ", date, " \"Skein ", version, "\"\n");
  std::string what = program.get_description();
  if (!what.empty() && what.back() == '.') what.pop_back();
  absl::StrAppend(&page, ".SH NAME\n", Escaped(name), " \\- ", Escaped(what), "\n.SH SYNOPSIS\n");
  AppendSynopsis(program, page);
  absl::StrAppend(&page, ".SH DESCRIPTION\n", Escaped(what), ".\n");
  AppendFooter(program, page);
  page += ".SH OPTIONS\n";
  AppendOptions(program, page);
  if (!CommandsOf(program).empty()) {
    page += ".SH COMMANDS\n";
    AppendCommands(program, page);
  }
  page +=
      ".SH EXIT STATUS\n.TP\n0\nDone.\n.TP\n1\nFailed.\n.TP\n2\nThe command line, or the file of\n"
      "\\fB\\-\\-config\\fR, is wrong.\n";
  return page;
}

}  // namespace skein
