// skein doctor
#pragma once

#include <cstdint>
#include <string>

#include "CLI/CLI.hpp"

namespace skein::client {

struct DoctorFlags {
  int32_t ranks = 1;
  std::string model;
  int port = 50051;
  std::string mpirun;  // further arguments of it
  std::string worker;  // the program; empty: beside this one
};

void DeclareDoctor(CLI::App& command, DoctorFlags& flags);

// Starts ranks that load nothing, asks them and their hosts how they are set up, and prints what is
// wrong with it and what to do. Returns the exit code: 1 where something is in error, or could not
// be asked.
int Doctor(const DoctorFlags& flags);

}  // namespace skein::client
