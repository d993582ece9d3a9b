// Runs a program to its end.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace skein::testing {

struct Outcome {
  int exit_code = -1;  // 128 + signal for a killed process
  std::string out;
  std::string err;

  bool ok() const { return exit_code == 0; }
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// `arguments` as a shell takes them. A program that runs for a minute fails the test.
Outcome Run(const std::string& program, const std::string& arguments,
            const Environment& environment = {});

// The most threads that the program has had at once, of those looked for every few milliseconds.
int MostThreads(const std::string& program, const std::string& arguments);

// A new path in the test's own folder, of a file or a folder that is not there yet.
std::string NewPath(const std::string& name);

// A model of that name, which is bard; returns its folder.
std::string MakeModel(const std::string& name);

}  // namespace skein::testing
