// Writes GGUF files for tests: good ones, and ones with exactly one error.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace troupe::test {

class GgufWriter {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;

  static std::string number(std::uint64_t value, std::size_t bytes) {
    std::string out(bytes, '\0');
    std::memcpy(out.data(), &value, bytes);
    return out;
  }
  static std::string text(std::string_view value) { return number(value.size(), 8).append(value); }

  // `payload` as it lies in the file, after the type number.
  void add_raw(std::string_view key, std::uint32_t type, std::string_view payload) {
    metadata_.append(text(key)).append(number(type, 4)).append(payload);
    ++num_metadata_;
  }
  void add(std::string_view key, std::uint32_t value) { add_raw(key, 4, number(value, 4)); }
  void add(std::string_view key, float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    add_raw(key, 6, number(bits, 4));
  }
  void add(std::string_view key, double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    add_raw(key, 12, number(bits, 8));
  }
  void add(std::string_view key, bool value) { add_raw(key, 7, number(value ? 1 : 0, 1)); }
  void add(std::string_view key, const char* value) { add_raw(key, 8, text(value)); }
  void add(std::string_view key, const std::vector<bool>& flags) {
    std::string payload = number(7, 4) + number(flags.size(), 8);
    for (const bool flag : flags) payload += number(flag ? 1 : 0, 1);
    add_raw(key, 9, payload);
  }
  void add(std::string_view key, const std::vector<std::uint32_t>& values) {
    std::string payload = number(4, 4) + number(values.size(), 8);
    for (const std::uint32_t value : values) payload += number(value, 4);
    add_raw(key, 9, payload);
  }

  // `type` is a ggml_type; `data` the bytes in the file.
  void add_tensor(std::string_view name, std::vector<std::uint64_t> shape, std::uint32_t type, std::string data) {
    add_tensor_at(name, std::move(shape), type, data_.size());
    data_.append(data);
    data_.resize((data_.size() + alignment - 1) / alignment * alignment, '\0');
  }
  // An entry that claims to lie at `offset`.
  void add_tensor_at(std::string_view name, std::vector<std::uint64_t> shape, std::uint32_t type,
                     std::uint64_t offset) {
    entries_.push_back({directory_.size(), offset});
    directory_.append(text(name)).append(number(shape.size(), 4));
    for (const std::uint64_t extent : shape) directory_.append(number(extent, 8));
    directory_.append(number(type, 4)).append(number(offset, 8));
    ++num_tensors_;
  }
  // Random float32 weights of about the size that keeps activations near 1.
  void add_floats(std::string_view name, std::vector<std::uint64_t> shape, std::uint64_t seed) {
    std::uint64_t count = 1;
    for (const std::uint64_t extent : shape) count *= extent;
    std::mt19937_64 random(seed);
    std::string data(count * 4, '\0');
    for (std::uint64_t i = 0; i < count; ++i) {
      const float value = (static_cast<float>(random() % 2001) / 1000.0f - 1.0f) * 0.25f;
      std::memcpy(data.data() + i * 4, &value, 4);
    }
    add_tensor(name, std::move(shape), 0, std::move(data));
  }

  std::string bytes() const {
    std::string out = "GGUF";
    out.append(number(version, 4)).append(number(num_tensors_, 8)).append(number(num_metadata_, 8));
    out.append(metadata_).append(directory_);
    out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out.append(data_);
  }
  std::size_t num_tensors() const { return entries_.size(); }
  // A file with the tensors from `first` to before `last`, in order, and no metadata.
  GgufWriter slice(std::size_t first, std::size_t last) const {
    GgufWriter out;
    out.version = version;
    out.alignment = alignment;
    for (std::size_t i = first; i < last; ++i) {
      const std::size_t end = i + 1 < entries_.size() ? entries_[i + 1].begin : directory_.size();
      out.entries_.push_back({out.directory_.size(), entries_[i].offset - entries_[first].offset});
      out.directory_.append(directory_, entries_[i].begin, end - 8 - entries_[i].begin);
      out.directory_.append(number(out.entries_.back().offset, 8));
    }
    if (first < last) {
      const std::uint64_t begin = entries_[first].offset;
      out.data_ = data_.substr(begin, last < entries_.size() ? entries_[last].offset - begin : std::string::npos);
    }
    out.num_tensors_ = last - first;
    return out;
  }
  // Where it stands in a split, as llama.cpp's gguf-split writes it.
  void add_split(std::uint64_t no, std::uint64_t count, std::uint64_t num_tensors_of_all) {
    add_raw("split.no", 2, number(no, 2));
    add_raw("split.count", 2, number(count, 2));
    add_raw("split.tensors.count", 5, number(num_tensors_of_all, 4));
  }
  // The file in parts that begin with the tensors `begins`, ascending. The first has the metadata and the tensors
  // before begins[0], which may be none.
  std::vector<GgufWriter> parts(const std::vector<std::size_t>& begins) const {
    std::vector<GgufWriter> all;
    for (std::size_t i = 0; i <= begins.size(); ++i) {
      all.push_back(slice(i == 0 ? 0 : begins[i - 1], i < begins.size() ? begins[i] : num_tensors()));
      if (i == 0) {
        all[0].metadata_ = metadata_;
        all[0].num_metadata_ = num_metadata_;
      }
      all[i].add_split(i, begins.size() + 1, num_tensors());
    }
    return all;
  }
  // Bytes in front of the tensor data.
  std::size_t header_bytes() const { return 24 + metadata_.size() + directory_.size(); }

 private:
  struct Entry {
    std::size_t begin;  // in directory_
    std::uint64_t offset;
  };

  std::string metadata_, directory_, data_;
  std::vector<Entry> entries_;
  std::uint64_t num_metadata_ = 0, num_tensors_ = 0;
};

// A file in memory that has a path; removed with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view bytes)
      : fd_(::memfd_create("troupe_test", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {
    write(bytes);
  }
  ~TemporaryFile() { ::close(fd_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }
  void write(std::string_view bytes) const {
    const bool written = ::ftruncate(fd_, static_cast<off_t>(bytes.size())) == 0 &&
                         ::pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
    if (!written) throw std::runtime_error("cannot write a test file");
  }

 private:
  int fd_;
  std::string path_;
};

// The smallest llama that the loader takes: 2 layers, dim 16, 2 heads, 1 kv head, 48 tokens.
struct TinyLlama {
  std::string architecture = "llama";
  std::string left_out = {};  // a tensor or metadata key that is not written
  std::uint32_t num_heads = 2;
  std::uint32_t num_kv_heads = 1;
  float epsilon = 1e-5f;
  std::uint32_t context = 64;
  std::uint32_t num_layers = 2;
  std::uint64_t ffn_rows = 24;  // of the gate matrices; 24 is right

  GgufWriter writer() const {
    GgufWriter w;
    const auto key = [&](const char* name) { return architecture + "." + name; };
    const auto put = [&](const std::string& name, auto value) {
      if (name != left_out) w.add(name, value);
    };
    put("general.architecture", architecture.c_str());
    put("tokenizer.ggml.model", "no_vocab");
    put(key("block_count"), num_layers);
    put(key("context_length"), context);
    put(key("embedding_length"), 16u);
    put(key("feed_forward_length"), 24u);
    put(key("attention.head_count"), num_heads);
    put(key("attention.head_count_kv"), num_kv_heads);
    put(key("attention.layer_norm_rms_epsilon"), epsilon);
    const auto tensor = [&](const std::string& name, std::vector<std::uint64_t> shape) {
      if (name != left_out) w.add_floats(name, std::move(shape), std::hash<std::string>{}(name));
    };
    tensor("token_embd.weight", {16, 48});
    for (int i = 0; i < 2; ++i) {
      const std::string blk = "blk." + std::to_string(i) + ".";
      tensor(blk + "attn_norm.weight", {16});
      tensor(blk + "attn_q.weight", {16, 16});
      tensor(blk + "attn_k.weight", {16, 8});
      tensor(blk + "attn_v.weight", {16, 8});
      tensor(blk + "attn_output.weight", {16, 16});
      tensor(blk + "ffn_norm.weight", {16});
      tensor(blk + "ffn_gate.weight", {16, ffn_rows});
      tensor(blk + "ffn_up.weight", {16, 24});
      tensor(blk + "ffn_down.weight", {24, 16});
    }
    tensor("output_norm.weight", {16});
    return w;
  }
};

// A small Mamba: 2 layers, dim 16, 32 channels of 8, 48 tokens. `norms`: Falcon-Mamba's.
struct TinyMamba {
  bool norms = false;

  GgufWriter writer() const {
    constexpr std::uint64_t kDim = 16, kInner = 32, kState = 8, kRank = 4;
    GgufWriter w;
    w.add("general.architecture", "mamba");
    w.add("tokenizer.ggml.model", "no_vocab");
    for (const auto& [key, value] : {std::pair{"block_count", 2u},
                                     {"context_length", 1024u},
                                     {"embedding_length", 16u},
                                     {"feed_forward_length", 0u},
                                     {"attention.head_count", 0u},
                                     {"vocab_size", 48u},
                                     {"ssm.conv_kernel", 4u},
                                     {"ssm.inner_size", 32u},
                                     {"ssm.state_size", 8u},
                                     {"ssm.time_step_rank", 4u}})
      w.add("mamba." + std::string(key), value);
    w.add("mamba.attention.layer_norm_rms_epsilon", 1e-5f);
    w.add("mamba.ssm.dt_b_c_rms", norms);
    std::uint64_t seed = 0;
    const auto put = [&](const std::string& name, std::vector<std::uint64_t> shape, double low, double high) {
      std::uint64_t count = 1;
      for (const std::uint64_t extent : shape) count *= extent;
      std::mt19937_64 random(++seed);
      std::vector<float> values(count);
      for (float& value : values)
        value = static_cast<float>(low + (high - low) * static_cast<double>(random() % 4096) / 4096);
      w.add_tensor(name, std::move(shape), 0, {reinterpret_cast<const char*>(values.data()), count * sizeof(float)});
    };
    put("token_embd.weight", {kDim, 48}, -1, 1);
    for (const std::string blk : {"blk.0.", "blk.1."}) {
      put(blk + "attn_norm.weight", {kDim}, 0.5, 1.5);
      put(blk + "ssm_in.weight", {kDim, 2 * kInner}, -0.5, 0.5);
      put(blk + "ssm_conv1d.weight", {4, kInner}, -0.5, 0.5);
      put(blk + "ssm_conv1d.bias", {kInner}, -0.2, 0.2);
      put(blk + "ssm_x.weight", {kInner, kRank + 2 * kState}, -1, 1);
      put(blk + "ssm_dt.weight", {kRank, kInner}, -0.5, 0.5);
      put(blk + "ssm_dt.bias", {kInner}, -2, 0);
      put(blk + "ssm_a", {kState, kInner}, -4, -0.1);
      put(blk + "ssm_d", {kInner}, 0.5, 1.5);
      put(blk + "ssm_out.weight", {kInner, kDim}, -0.5, 0.5);
    }
    put("output_norm.weight", {kDim}, 0.5, 1.5);
    return w;
  }
};

}  // namespace troupe::test
