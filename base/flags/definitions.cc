#include "base/flags/definitions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein {

std::vector<CLI::Option*> OptionsOf(CLI::App& command) {
  std::vector<CLI::Option*> options = command.get_options();
  for (CLI::App* const group : command.get_subcommands([](CLI::App*) { return true; })) {
    if (!group->get_name().empty()) continue;
    std::vector<CLI::Option*> more = OptionsOf(*group);
    std::erase(more, group->get_help_ptr());  // each group has a --help of its own
    options.insert(options.end(), more.begin(), more.end());
  }
  return options;
}

std::vector<CLI::Option*> ShownOptionsOf(CLI::App& command) {
  std::vector<CLI::Option*> options = OptionsOf(command);
  std::erase_if(options, [](const CLI::Option* option) { return option->get_group().empty(); });
  return options;
}

std::vector<CLI::App*> CommandsOf(CLI::App& command) {
  return command.get_subcommands([](CLI::App* sub) { return !sub->get_name().empty(); });
}

CLI::App* FindCommand(CLI::App& command, const std::string& name) {
  for (CLI::App* const sub : CommandsOf(command)) {
    if (sub->get_name() == name) return sub;
  }
  return nullptr;
}

std::string PathOf(const CLI::App& command) {
  if (command.get_parent() == nullptr) return command.get_name();
  return absl::StrCat(PathOf(*command.get_parent()), " ", command.get_name());
}

bool IsSwitch(const CLI::Option& option) { return option.get_expected_min() == 0; }

std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t start = type.find('{');
  const size_t end = type.find('}');
  if (start == type.npos || end == type.npos || end < start) return {};
  return absl::StrSplit(type.substr(start + 1, end - start - 1), ',');
}

}  // namespace skein
