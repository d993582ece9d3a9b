// The fields of a request that several commands have as flags.
#pragma once

#include <algorithm>
#include <string>

#include "CLI/CLI.hpp"
#include "base/flags/flags.h"
#include "proto/convert/sampling_scalars.h"
#include "proto/inference.pb.h"
#include "serving/sampling_fields.h"

namespace skein::client {

// Flags that are given set their fields; `sampling` lives until the command line is parsed.
void DeclareSampling(CLI::App& command, v1::Sampling& sampling);

// --model and --max-tokens of a request, which lives as long.
void DeclareModelAndLength(CLI::App& command, v1::GenerateRequest& request);

// Declares the scalars' flags alone, like "--top-k" for top_k.
template <typename Fields = serving::SamplingFields>
void DeclareScalars(CLI::App& command, google::protobuf::Message& sampling) {
  Fields::ForEach([&]<typename P, typename T>(const serving::SamplingField<P, T>& field) {
    const std::string name(field.name);
    std::string flag = "--" + name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (name == "temperature") flag += ",-t";  // the one that people type most
    command
        .add_option_function<T>(
            flag,
            [&sampling, name](const T& value) { convert::SetScalar<T>(sampling, name, value); },
            std::string(field.help))
        ->check(InRange<T>());
  });
}

}  // namespace skein::client
