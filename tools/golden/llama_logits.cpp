// Prints what llama.cpp computes of a model: llama_logits MODEL.gguf OUT.f32 ID... writes its logits of all positions,
// [tokens, vocabulary] in float32. For tools/golden/witnesses.py; built outside the tree,
// against the library and the headers that the tool is to ask.
//
// As the fixtures are made for: one thread, K and V in float32, no flash attention, weights in the file's layout.
#include <llama.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 4) return std::fprintf(stderr, "usage: llama_logits MODEL.gguf OUT.f32 ID...\n"), 2;
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
  llama_model_params model_params = llama_model_default_params();
  model_params.use_extra_bufts = false;
  llama_model* const model = llama_model_load_from_file(argv[1], model_params);
  if (!model) return 1;
  const int count = argc - 3;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = 1;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = GGML_TYPE_F32;
  llama_context* const context = llama_init_from_model(model, params);
  llama_batch batch = llama_batch_init(count, 0, 1);
  batch.n_tokens = count;
  for (int i = 0; i < count; ++i) {
    batch.token[i] = std::atoi(argv[3 + i]);
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  if (!context || llama_decode(context, batch) != 0) return std::fprintf(stderr, "it cannot be computed\n"), 1;
  const auto vocabulary = static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  std::FILE* const out = std::fopen(argv[2], "wb");
  if (!out) return std::perror(argv[2]), 1;
  for (int i = 0; i < count; ++i) std::fwrite(llama_get_logits_ith(context, i), sizeof(float), vocabulary, out);
  return std::fclose(out) == 0 ? 0 : 1;
}
