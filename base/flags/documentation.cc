#include "base/flags/documentation.h"

#include <iostream>
#include <string>

#include "absl/status/statusor.h"
#include "base/flags/completion.h"
#include "base/flags/man.h"
#include "base/version.h"

namespace skein {

void DeclareDocumentation(CLI::App& program) {
  // Callbacks are run before CLI11 looks for what is required.
  const auto man = [&program](const std::string& date) {
    std::cout << ManPage(program, std::string(kVersion), date) << std::flush;
    throw CLI::Success();
  };
  const auto completion = [&program](const std::string& shell) {
    const absl::StatusOr<std::string> script = CompletionScript(program, shell);
    if (!script.ok()) {
      throw CLI::ValidationError("--help-completion", std::string(script.status().message()));
    }
    std::cout << *script << std::flush;
    throw CLI::Success();
  };
  program.add_option_function<std::string>("--help-man", man, "")->group("");
  program.add_option_function<std::string>("--help-completion", completion, "")->group("");
}

}  // namespace skein
