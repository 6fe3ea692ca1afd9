// Half of libFuzzer's mutations of a model file are made by GgufMutator, which knows the format.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "tests/fuzz/gguf_mutator.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  std::mt19937_64 random(seed);
  if (size < 24 || random() % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const troupe::fuzz::GgufMutator mutator(std::string(reinterpret_cast<const char*>(data), size));
  std::string mutated = mutator.mutate(random);
  mutated.resize(std::min(mutated.size(), max_size));
  std::memcpy(data, mutated.data(), mutated.size());
  return mutated.size();
}
