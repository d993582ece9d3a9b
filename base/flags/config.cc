#include "base/flags/config.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/flags/config_syntax.h"
#include "base/flags/definitions.h"

namespace skein {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;
constexpr char kConfig[] = "--config";
constexpr char kPrintConfig[] = "--print-config";

// CLI11 answers --help and --version itself, and hidden flags are not for files.
bool InFiles(const CLI::Option& option) {
  return option.get_configurable() && !option.get_group().empty();
}

std::string KeyOf(const CLI::Option& option) { return option.get_single_name(); }

CLI::Option* FindOption(CLI::App& command, const std::string& key) {
  for (CLI::Option* const option : OptionsOf(command)) {
    const std::vector<std::string>& names = option->get_lnames();
    const bool named = names.empty() ? option->get_single_name() == key
                                     : std::find(names.begin(), names.end(), key) != names.end();
    if (named && InFiles(*option)) return option;
  }
  return nullptr;
}

bool TakesList(const CLI::Option& option) {
  return option.get_items_expected_max() > 1 ||
         option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
}

void Give(const ConfigEntry& entry, CLI::Option& option) {
  if (IsSwitch(option)) {
    if (entry.list || (entry.values[0] != "true" && entry.values[0] != "false")) {
      throw CLI::ValidationError(absl::StrCat(
          "must be true or false, not ", entry.list ? "a list" : "", entry.list ? "" : "'",
          entry.list ? "" : entry.values[0], entry.list ? "" : "'"));
    }
    option.add_result(option.get_flag_value(entry.key, entry.values[0]));
  } else {
    if (entry.list && !TakesList(option)) throw CLI::ValidationError("takes one value, not a list");
    for (const std::string& value : entry.values) option.add_result(value);
  }
  if (option.count() > 0) option.run_callback();
}

// CLI11's own place for what reads configuration, so that it lives as long as the program's
// definitions, whose callbacks use it.
class Configuration : public CLI::ConfigBase {
 public:
  explicit Configuration(CLI::App& program) : program_(program) {}

  // Adds the flags to a command. They act where the last of a program's callbacks is run, since
  // all of the command line is parsed then, and requirements are not yet looked at.
  void Declare(CLI::App& command, bool hidden) {
    CLI::Option* const config =
        command
            .add_option_function<std::string>(
                kConfig, [this](const std::string&) { Read(); },
                "Take flags that the command line does not have from this file, which holds lines "
                "like \"port-file = FILE\", and sections for commands")
            ->type_name("FILE")
            ->configurable(false);
    CLI::Option* const print = command
                                   .add_flag_callback(
                                       kPrintConfig, [this] { Print(); },
                                       "Print all flags and where their values come from, as a "
                                       "file for --config, and exit")
                                   ->configurable(false);
    configs_.push_back(config);
    prints_.push_back(print);
    if (!hidden) return;
    config->group("");
    print->group("");
  }

  bool FromFile(const CLI::Option& option) const { return from_.contains(&option); }
  const std::string& path() const { return path_; }
  const std::vector<ConfigEntry>& entries() const { return entries_; }

 private:
  // Whose the entry is; nullptr where it is another program's.
  CLI::App* CommandOf(const ConfigEntry& entry) {
    auto word = entry.section.begin();
    CLI::App* command = &program_;
    if (word != entry.section.end() && *word == program_.get_name()) {
      ++word;
    } else if (word != entry.section.end() && std::find(std::begin(kPrograms), std::end(kPrograms),
                                                        *word) != std::end(kPrograms)) {
      return nullptr;
    }
    for (; word != entry.section.end(); ++word) {
      CLI::App* const found = FindCommand(*command, *word);
      if (found == nullptr) {
        Fail(entry.line, absl::StrCat("[", absl::StrJoin(entry.section, "."),
                                      "]: ", PathOf(*command), " has no command ", *word));
      }
      command = found;
    }
    return command;
  }

  [[noreturn]] void Fail(int line, const std::string& what) const {
    throw CLI::ConfigError(absl::StrCat(path_, ", line ", line, ": ", what));
  }

  // Once. Where all is to be printed, also what is for commands that do not run.
  void Read() {
    std::vector<std::string> paths;
    for (const CLI::Option* config : configs_) {
      for (const std::string& path : config->results()) paths.push_back(path);
    }
    if (read_ || paths.empty()) return;
    read_ = true;
    if (paths.size() > 1) throw CLI::ConfigError(absl::StrCat(kConfig, ": may be given once"));
    path_ = paths[0];
    const absl::StatusOr<std::string> text = ReadFileOrPipe(path_, kMaxBytes);
    if (!text.ok()) {
      throw CLI::ConfigError(absl::StrCat(kConfig, ": ", text.status().message()));
    }
    absl::StatusOr<std::vector<ConfigEntry>> entries = ParseConfig(*text);
    if (!entries.ok()) {
      throw CLI::ConfigError(absl::StrCat(path_, ", ", entries.status().message()));
    }
    entries_ = *std::move(entries);
    const bool all = std::any_of(prints_.begin(), prints_.end(),
                                 [](const CLI::Option* print) { return print->count() > 0; });
    std::map<const CLI::Option*, int> lines;
    for (const ConfigEntry& entry : entries_) Take(entry, all, lines);
  }

  void Take(const ConfigEntry& entry, bool all, std::map<const CLI::Option*, int>& lines) {
    CLI::App* const command = CommandOf(entry);
    if (command == nullptr) return;
    CLI::Option* const option = FindOption(*command, entry.key);
    if (option == nullptr) {
      Fail(entry.line, absl::StrCat(entry.key, ": ", PathOf(*command), " has no such flag"));
    }
    const auto [line, first] = lines.emplace(option, entry.line);
    if (!first) Fail(entry.line, absl::StrCat(entry.key, ": line ", line->second, " has it, too"));
    if (option->count() > 0 || (!all && command->count() == 0)) return;
    from_[option] = entry.line;
    try {
      Give(entry, *option);
    } catch (const CLI::ParseError& error) {
      const std::string what = error.what();
      const std::string name = option->get_name();
      Fail(entry.line, what.rfind(name, 0) == 0 ? what : absl::StrCat(entry.key, ": ", what));
    }
  }

  void Print() {
    // Without a command: of all commands.
    CLI::App* command = &program_;
    std::vector<CLI::App*> chosen = {command};
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands().front();
      chosen.push_back(command);
    }
    Read();
    for (CLI::App* const app : chosen) {
      if (!app->get_allow_extras() && app->remaining_size() > 0) {
        throw CLI::ExtrasError(app->get_name(), app->remaining());
      }
    }
    std::string text = absl::StrCat("# `", program_.get_name(), " --config FILE` reads this.\n");
    for (CLI::App* const app : chosen) PrintOptions(*app, text);
    PrintBelow(*command, text);
    std::cout << text << std::flush;
    throw CLI::Success();
  }

  void PrintBelow(CLI::App& command, std::string& text) {
    for (CLI::App* const sub : CommandsOf(command)) {
      PrintOptions(*sub, text);
      PrintBelow(*sub, text);
    }
  }

  void PrintOptions(CLI::App& command, std::string& text) {
    std::string lines;
    for (CLI::Option* const option : OptionsOf(command)) {
      if (InFiles(*option)) absl::StrAppend(&lines, LineOf(*option), "\n");
    }
    if (lines.empty()) return;
    std::string section = PathOf(command);
    std::replace(section.begin(), section.end(), ' ', '.');
    absl::StrAppend(&text, "\n[", section, "]\n", lines);
  }

  // A default is a comment: CLI11 takes a flag of a file for given, which others may exclude.
  std::string LineOf(CLI::Option& option) const {
    const std::string key = KeyOf(option);
    if (option.count() == 0) {
      std::string value = option.get_default_str();
      if (value.empty() && IsSwitch(option)) value = "false";
      const std::string shown = value.empty() ? "" : absl::StrCat(" ", Shown(option, value));
      return absl::StrCat("# ", key, " =", shown, "  # default");
    }
    if (!option.get_callback_run()) option.run_callback();  // finds what is wrong with it
    const auto from = from_.find(&option);
    const std::string origin =
        from == from_.end() ? "command line" : absl::StrCat(path_, ", line ", from->second);
    return absl::StrCat(key, " = ", Given(option), "  # ", origin);
  }

  static std::string Given(const CLI::Option& option) {
    const std::vector<std::string>& values = option.results();
    if (IsSwitch(option)) return CLI::detail::to_flag_value(values.back()) > 0 ? "true" : "false";
    if (values.size() == 1) return Shown(option, values[0]);
    const auto shown = [&](std::string* out, const std::string& value) {
      absl::StrAppend(out, Shown(option, value));
    };
    return absl::StrCat("[", absl::StrJoin(values, ", ", shown), "]");
  }

  static std::string Shown(const CLI::Option& option, const std::string& value) {
    // As CLI11 writes the default of a list.
    if (TakesList(option) && option.count() == 0 && value[0] == '[') return value;
    const bool number = !value.empty() && value.size() < 16 && value[0] != '0' &&
                        value.find_first_not_of("0123456789") == value.npos;
    const bool truth = IsSwitch(option) && (value == "true" || value == "false");
    return number || truth || value == "0" ? value : QuoteConfigValue(value);
  }

  CLI::App& program_;
  std::vector<const CLI::Option*> configs_;  // --config of the program and of commands
  std::vector<const CLI::Option*> prints_;   // --print-config, likewise
  bool read_ = false;
  std::string path_;
  std::vector<ConfigEntry> entries_;
  std::map<const CLI::Option*, int> from_;  // lines of the file
};

// A command that passes --help on passes these on, too, to the program that answers.
void DeclareBelow(CLI::App& command, Configuration& configuration) {
  for (CLI::App* const sub : CommandsOf(command)) {
    if (!sub->get_fallthrough() && sub->get_help_ptr() != nullptr) {
      configuration.Declare(*sub, /*hidden=*/true);
    }
    DeclareBelow(*sub, configuration);
  }
}

const Configuration* Of(const CLI::App& program) {
  return dynamic_cast<const Configuration*>(program.get_config_formatter().get());
}

}  // namespace

void DeclareConfig(CLI::App& program) {
  auto configuration = std::make_shared<Configuration>(program);
  configuration->Declare(program, /*hidden=*/false);
  DeclareBelow(program, *configuration);
  program.config_formatter(std::move(configuration));
}

bool OnCommandLine(const CLI::App& program, const CLI::Option& option) {
  const Configuration* const read = Of(program);
  return option.count() > 0 && (read == nullptr || !read->FromFile(option));
}

std::optional<ConfigForOther> FindConfigFor(const CLI::App& program, const std::string& other) {
  const Configuration* const read = Of(program);
  if (read == nullptr) return std::nullopt;
  ConfigForOther found{.path = read->path()};
  for (const ConfigEntry& entry : read->entries()) {
    if (!entry.section.empty() && entry.section[0] == other) found.keys.push_back(entry.key);
  }
  if (found.keys.empty()) return std::nullopt;
  return found;
}

}  // namespace skein
