// skein keys
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "serving/keys/key_file.h"

namespace skein::client {

struct KeysFlags {
  std::string file;
  std::string name;
  serving::KeyLimits limits;
  CLI::App* add = nullptr;
  CLI::App* list = nullptr;
  CLI::App* remove = nullptr;
};

void DeclareKeys(CLI::App& command, KeysFlags& flags);

// Changes or shows a coordinator's file of API keys; a new key is printed, and nowhere else to be
// had. Returns the exit code.
int Keys(const KeysFlags& flags);

}  // namespace skein::client
