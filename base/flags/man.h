// Man pages, made from what --help is made from.
#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace skein {

// The page of a program and of its commands, in the macros of man(7). `date` is that of the page.
std::string ManPage(CLI::App& program, const std::string& version, const std::string& date);

}  // namespace skein
