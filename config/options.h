// One table of options: every flag, TROUPE_* variable and troupe.toml key, with its type, range, unit, default and
// help.
//
// The parser, --help, --print-config, the variables and the file all use the table in option_table.cpp, so they cannot
// disagree. The first of these sets an option: flag, environment, file, default. Everything here is plain and
// thread-compatible; only parse() and read_again() read files.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/result.h"

namespace troupe::config {

// An amount of memory: written "4GiB", "512M", "1.5GB" (powers of 1000) or a plain number of bytes.
struct Bytes {
  std::uint64_t count = 0;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

using Seed = std::optional<std::uint64_t>;  // written as a number; "-1" or nullopt: drawn for each request

// The values of all options; the initial values are the defaults. option_table.cpp says which subcommands use an
// option. Zero or empty means "choose automatically" where the help says so.
struct Options {
  // A model, loaded by this process (serve, bench, eval, perplexity, inspect, tokenize); its size alone (probe).
  std::string model;
  std::string draft;
  std::int64_t ctx_size = 0;  // tokens of one sequence; 0: the trained context
  std::int64_t threads = 0;   // 0: engine::default_num_threads()
  std::string kv_type = "f16";
  std::string state_type = "f32";
  std::int64_t state_snapshot_every = 512;
  Bytes memory;                // 0: 60 % of what is available
  std::int64_t kv_blocks = 0;  // 0: what the memory budget leaves
  std::string kernels;
  std::string ternary = "auto";
  std::string weights_cache;              // a directory or "auto"; empty, "off": none
  Bytes weights_cache_size{32ull << 30};  // 0: any

  // The server.
  std::string socket;
  bool no_strict_modes = false;
  std::string alias;
  std::string model_name;  // what a client asks for
  std::int64_t max_step_tokens = 512;
  std::int64_t parallel = 64;
  std::int64_t max_queued_requests = 1024;
  std::int64_t max_parked_requests = 1024;
  std::int64_t max_queued_tokens = 1 << 22;
  std::int64_t max_queued_texts = 64;
  Bytes max_queued_text_bytes{64u << 20};
  Bytes max_embed_bytes{64u << 20};
  std::int64_t max_requests_per_user = 512;
  std::int64_t tokenizer_threads = 2;
  std::int64_t max_connections = 256;
  std::int64_t max_connections_per_uid = 64;
  std::int64_t max_streams = 64;
  Bytes max_frame_bytes{4u << 20};
  Bytes max_outbox_bytes{16u << 20};
  Bytes max_buffer_bytes{512u << 20};
  std::int64_t max_frames_per_second = 20'000;
  std::int64_t max_questions_per_second = 1'000;
  std::chrono::milliseconds stall_timeout{60'000};
  std::chrono::milliseconds hello_timeout{5'000};
  std::chrono::milliseconds idle_timeout{0};
  std::chrono::milliseconds drain_timeout{30'000};
  std::chrono::milliseconds progress_timeout{60'000};
  std::vector<std::int64_t> allow_uid;
  std::vector<std::int64_t> allow_gid;
  std::vector<std::string> allow_user;   // each may hold several names, separated by commas
  std::vector<std::string> allow_group;  // likewise
  std::chrono::milliseconds idle_exit{0};
  std::string log_format = "text";
  std::string log_level = "info";
  std::string log_file;

  // A request (run). The sampling defaults are llama.cpp's.
  std::int64_t predict = -1;
  std::int64_t choices = 1;
  double temp = 0.8;
  Seed seed;
  std::int64_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
  double repeat_penalty = 1.0;
  std::int64_t repeat_last_n = 64;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::vector<std::string> logit_bias;
  std::vector<std::string> stop;
  std::vector<std::int64_t> stop_id;
  bool ignore_eos = false;
  std::int64_t logprobs = -1;
  std::chrono::milliseconds timeout{0};
  std::int64_t priority = 0;
  std::string scope;
  std::string file;
  bool ids = false;
  bool special = false;
  bool json = false;
  bool raw = false;
  bool verbose = false;

  // status, top
  bool prometheus = false;
  bool show_profile = false;
  std::chrono::milliseconds interval{1000};
  bool once = false;

  // bench (format also perplexity)
  std::vector<std::int64_t> n_prompt{512};
  std::vector<std::int64_t> n_gen{64};
  std::vector<std::string> prompt_gen;  // "512,128"
  std::vector<std::int64_t> batch_sizes{1, 8, 32};
  std::vector<std::int64_t> n_depth{0};
  std::int64_t step_tokens = 512;  // most prompt tokens of one step
  std::int64_t repetitions = 5;
  std::string format = "md";
  bool overhead = false;
  bool profile = false;  // also serve

  // probe
  bool refresh = false;
  bool quick = false;
  std::string output_format = "text";

  // load
  double rate = 0;  // requests per second; 0: a closed loop
  double burstiness = 1;
  std::int64_t clients = 0;      // 0: 8 in a closed loop, any number in an open one
  std::int64_t num_prompts = 0;  // 0: until duration ends, or 100
  std::chrono::milliseconds duration{0};
  std::chrono::milliseconds ramp_up{0};
  double ramp_from = 0;
  std::chrono::milliseconds think_time{0};
  std::int64_t connections = 0;  // 0: one per client, at most 32
  std::int64_t max_retries = 0;
  std::chrono::milliseconds patience{120'000};
  std::string prompt_len = "128";
  std::string output_len = "64";
  std::int64_t prefix_len = 0;
  std::int64_t num_prefixes = 1;
  double prefix_share = 1;
  bool warm = false;
  std::string trace;
  std::string trace_out;
  double fault_cancel = 0;
  double fault_disconnect = 0;
  double fault_slow_reader = 0;
  double fault_garbage = 0;
  std::chrono::milliseconds fault_pause{2'000};
  bool verify = false;
  std::vector<std::string> goodput;
  double require_goodput = 0;
  std::int64_t max_failed = 0;
  std::int64_t max_refused = -1;
  std::string report;
  std::string html;
  std::string openai;
  std::string api_key;

  // perplexity
  std::int64_t window = 512;
  std::int64_t stride = 0;  // 0: windows side by side
  std::int64_t chunks = 0;  // windows; 0: all
  bool by_position = false;

  // eval, tokenize
  std::string tokens;
  std::string output;
  std::int64_t greedy = 0;
  std::int64_t chunk = 512;
  std::string compare;  // empty: the same model; "same" below: as the first run
  std::string compare_kv_type = "same";
  std::string compare_kernels = "same";
  std::string compare_ternary = "same";
  bool decode = false;
  bool no_bos = false;

  // embed
  std::string pooling;
  bool no_normalise = false;

  // Every subcommand.
  std::string config;
  bool print_config = false;
  bool print_limits = false;  // serve
  bool help = false;
};

// The subcommands that this version has.
enum class Command : std::uint8_t {
  serve,
  run,
  bench,
  eval,
  tokenize,
  inspect,
  status,
  top,
  version,
  load,
  probe,
  perplexity,
  embed
};

// Its place in a set of subcommands.
constexpr std::uint32_t bit(Command command) { return 1u << static_cast<unsigned>(command); }

struct CommandInfo {
  Command command;
  std::string_view name;
  std::string_view summary;      // one line for `troupe --help`
  std::string_view arguments;    // the positional ones, as --help shows them: "[PROMPT...]"; empty: none allowed
  std::string_view description;  // a paragraph for `troupe NAME --help`
  std::vector<std::string_view> examples;
};

[[nodiscard]] std::span<const CommandInfo> commands();
[[nodiscard]] const CommandInfo& info(Command command);
// nullptr if there is no such subcommand.
[[nodiscard]] const CommandInfo* find_command(std::string_view name);

// The member of Options that holds an option's value; its type determines how it is parsed, printed and checked.
using Field = std::variant<bool Options::*, std::int64_t Options::*, double Options::*, std::string Options::*,
                           Bytes Options::*, std::chrono::milliseconds Options::*, Seed Options::*,
                           std::vector<std::int64_t> Options::*, std::vector<std::string> Options::*>;

// Allowed values of a number, an amount (in bytes), a duration (in milliseconds) or each entry of a list.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is not allowed
};

// One row of the table. `name` is the flag without its dashes and the key in troupe.toml; the variable is TROUPE_ and
// the name in capitals with underscores.
struct Option {
  std::string_view name;
  std::string_view also;  // further spellings, separated by spaces: "-c --max-model-len"
  Field field;
  std::uint32_t commands;  // the bit of each subcommand that has it
  std::string_view group;  // heading in --help
  std::string_view value;  // placeholder in --help: "TOKENS"; "a|b|c": these values only; empty: a flag without value
  Range range;
  std::string_view help;   // ends with the meaning of 0 or empty, if it is special
  bool flag_only = false;  // no variable and no key in the file (--help, --print-config)
  bool reloads = false;    // a running server can change the value (read_again())

  bool belongs_to(Command command) const { return (commands & bit(command)) != 0; }
  std::string variable() const;                // "TROUPE_CTX_SIZE"
  std::vector<std::string> spellings() const;  // "--ctx-size", then those of `also`
};

[[nodiscard]] std::span<const Option> option_table();

// The inputs of parse() besides the arguments.
struct Surroundings {
  std::map<std::string, std::string, std::less<>> variables;  // the whole environment
  std::string system_file = "/etc/troupe/troupe.toml";

  static Surroundings of_this_process();
};

struct Parsed {
  Options options;
  std::vector<std::string> arguments;                       // all that is not a flag, in order
  std::map<std::string, std::string, std::less<>> origins;  // option name -> "--threads", "TROUPE_THREADS", "FILE:3"
  std::vector<std::string> warnings;                        // unknown TROUPE_* variables
  std::string file;                                         // the configuration file that was read, if any
  std::vector<std::string> command_line;                    // the parsed arguments, for read_again()
};

// Reads the arguments after the subcommand's name, the environment and the configuration file: --config, else
// TROUPE_CONFIG, else $XDG_CONFIG_HOME/troupe/troupe.toml (~/.config without the variable), else the system's file; of
// the last two the first that exists. A file may set options of other subcommands: they are checked and not used.
//
// With --help among the arguments everything else is ignored. Errors: invalid_argument for the command line, bad_config
// for a variable or a file; the message names the source, the value, and the range or the nearest known name.
[[nodiscard]] Result<Parsed> parse(Command command, std::span<const std::string> arguments,
                                   const Surroundings& surroundings);

// The result of read_again().
struct Reread {
  Parsed in_effect;                       // the old values, with the new values of options that reload
  std::vector<const Option*> changed;     // options that reload and have a new value
  std::vector<std::string> need_restart;  // "threads = 4 (FILE:3)": other options with a new value
};

// Calls parse() again, with the same command line. Errors: as parse(); then the old values stay in effect.
[[nodiscard]] Result<Reread> read_again(Command command, const Parsed& in_effect, const Surroundings& surroundings);

// That a value which parse() took cannot be used: `why`, behind where the value comes from. invalid_argument for a flag
// or a default, bad_config for a variable or a file.
[[nodiscard]] Error bad_value(const Parsed& parsed, const std::string& option, const std::string& why);

// The option as it stands in the configuration in effect: "log-level = \"warn\" (FILE:3)".
[[nodiscard]] std::string describe(const Option& option, const Parsed& parsed);

// What `troupe NAME --help` prints: usage, options by group with default, range and variable, and examples.
[[nodiscard]] std::string help(Command command);

struct ExitStatus {
  int code;
  std::string_view meaning;
};

// The manual page troupe(1) in man(7) format: the --help of every subcommand, and these exit statuses.
[[nodiscard]] std::string man_page(std::string_view version, std::span<const ExitStatus> statuses);

// What `troupe NAME --print-config` prints: a troupe.toml that reads back to the same values (of UTF-8 texts).
[[nodiscard]] std::string print_config(Command command, const Parsed& parsed);

}  // namespace troupe::config
