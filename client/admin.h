// skein model, skein drain
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "client/endpoint.h"

namespace skein::client {

struct ModelFlags {
  std::string model;                      // "NAME=PATH", or a name
  std::vector<std::string> model_flags;   // of the new model
  std::optional<absl::Duration> timeout;  // none: the coordinator's
  bool json = false;
  CLI::App* add = nullptr;
  CLI::App* remove = nullptr;
  CLI::App* list = nullptr;
};

void DeclareModel(CLI::App& command, ModelFlags& flags);

// Adds a model, removes one and waits until it is gone, or lists all. Returns the exit code.
int Model(const Endpoint& coordinator, const ModelFlags& flags);

struct DrainFlags {
  std::string job;
  std::optional<absl::Duration> timeout;  // none: the coordinator's
};

void DeclareDrain(CLI::App& command, DrainFlags& flags);

// Drains a job and waits until it has ended. Returns the exit code.
int Drain(const Endpoint& coordinator, const DrainFlags& flags);

}  // namespace skein::client
