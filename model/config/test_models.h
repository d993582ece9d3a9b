// Architectures that tests of the planner and of its costs share.
#pragma once

#include "model/config/model_config.h"

namespace skein::model {

// The demo model's.
inline ModelConfig Bard() {
  ModelConfig model;
  model.architecture = "LlamaForCausalLM";
  model.vocab_size = 2048;
  model.hidden_size = 256;
  model.intermediate_size = 768;
  model.num_layers = 8;
  model.num_heads = 4;
  model.num_kv_heads = 2;
  model.head_dim = 64;
  model.max_position_embeddings = 1024;
  model.tie_word_embeddings = true;
  return model;
}

inline ModelConfig Llama8B() {
  ModelConfig model;
  model.architecture = "LlamaForCausalLM";
  model.vocab_size = 128256;
  model.hidden_size = 4096;
  model.intermediate_size = 14336;
  model.num_layers = 32;
  model.num_heads = 32;
  model.num_kv_heads = 8;
  model.head_dim = 128;
  model.max_position_embeddings = 8192;
  return model;
}

inline ModelConfig Llama70B() {
  ModelConfig model = Llama8B();
  model.hidden_size = 8192;
  model.intermediate_size = 28672;
  model.num_layers = 80;
  model.num_heads = 64;
  return model;
}

}  // namespace skein::model
