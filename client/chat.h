// skein chat
#pragma once

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "client/endpoint.h"
#include "proto/inference.pb.h"

namespace skein::client {

struct ChatFlags {
  std::optional<std::string> system;  // what the system says first
  v1::GenerateRequest request;        // all but the conversation
};

// `flags` lives until the command line is parsed.
void DeclareChat(CLI::App& command, ChatFlags& flags);

// Reads a line of the user, streams the answer to standard output, and so on to the end of standard
// input; each request has the whole conversation. Ctrl-C ends an answer, and between answers the
// chat. Returns kExitError where an answer failed and nobody sits at a terminal to see it.
int Chat(const Endpoint& coordinator, const ChatFlags& flags);

}  // namespace skein::client
