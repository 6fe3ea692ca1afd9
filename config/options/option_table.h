// The values of all options: groups of options, the groups of each subcommand, and everything together.
//
// A new option is a member of a group, whose initial value is the default, and a row in option_table.cpp. The
// subcommands that have the group have the option. Zero or empty means "choose automatically" where the help says so.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/options/bytes.h"
#include "config/options/server_limits.h"
#include "config/sampling/sampling_numbers.h"

namespace troupe::config {

// Groups that several subcommands have.

struct HelpOptions {
  bool help = false;
};

struct ConfigOptions {
  std::string config;
  bool print_config = false;
};

// Where models that troupe has fetched are.
struct StoreDirOptions {
  std::string store;  // empty: this user's, and where models are looked for also the machine's
};

struct ModelOptions : StoreDirOptions {
  std::vector<std::string> model;  // a path or a name of the store; of serve also NAME=PATH, and several
  std::string hf_repo;             // a name of the store alone; empty: none
};

struct ThreadOptions {
  std::int64_t threads = 0;  // 0: engine::default_num_threads()
};

// Of what decides how much memory a model takes, the part that `pull` asks for, and that which `inspect` shows.
struct BudgetOptions {
  Bytes memory;  // 0: 60 % of what is available
};

struct FitOptions : BudgetOptions {
  std::string state_type = "f32";
  std::string kernels;
  std::string optimize = "auto";
};

// A model that this process loads to compute with it.
struct EngineOptions : ModelOptions, ThreadOptions, FitOptions {
  std::string kv_type = "f16";
  std::int64_t state_snapshot_every = 512;
  std::string ternary = "auto";
  std::string weights_cache;               // a directory or "auto"; empty, "off": none
  Bytes weights_cache_size = 32ull << 30;  // 0: any
};

struct ContextOptions {
  std::int64_t ctx_size = 0;  // tokens of one sequence; 0: the trained context
};

struct ProfileOptions {
  bool profile = false;
};

// Of serve, and of run, which asks for something else than the server's.
struct SpeculationOptions {
  std::string spec_type;               // empty: the server's, which is "auto" by default
  std::int64_t spec_draft_n_max = -1;  // -1: the server's, which is 16 by default
  std::int64_t spec_draft_n_min = -1;  // likewise, 0
  double spec_draft_p_min = -1;        // likewise, 0
};

struct SocketOptions {
  std::string socket;
  bool no_strict_modes = false;
};

struct UsageFileOptions {
  std::string usage_db = "auto";  // a file, "auto" or "off"
};

struct KeysFileOptions {
  std::string keys_file = "auto";
};

struct ModelNameOptions {
  std::string model_name;  // what a client asks for
};

// Requests for answers.
struct RequestOptions : ModelNameOptions, SamplingOptions {
  std::string scope;
};

struct TextOptions {
  std::string file;
};

// A text or token ids, as arguments, from a file or piped in.
struct TokenTextOptions : TextOptions {
  std::chrono::milliseconds stdin_timeout{30'000};  // 0: what is piped in beside arguments is not read
  bool ids = false;
  bool special = false;
};

struct ControlTokenOptions {  // run, tokenize
  bool no_parse_special = false;
};

struct EndsOptions {
  bool no_bos = false;
};

struct RawOptions {
  bool raw = false;
};

struct JsonOptions {
  bool json = false;
};

struct FormatOptions {
  std::string format = "md";
};

// Groups of one subcommand.

struct SessionsDirOptions {           // serve, session, backup, restore
  std::string sessions_dir = "auto";  // a directory or "auto"; empty, "off": none
};

struct ServerOptions {
  std::string draft;
  std::int64_t kv_blocks = 0;  // 0: what the memory budget leaves
  std::string alias;
  std::string chat_template;  // a file or a name; empty: the model's own
  std::vector<std::int64_t> allow_uid;
  std::vector<std::int64_t> allow_gid;
  std::vector<std::string> allow_user;   // each may hold several names, separated by commas
  std::vector<std::string> allow_group;  // likewise
  std::vector<std::string> listen;       // each may hold several, separated by commas; so may the next two
  bool no_auth = false;
  bool open = false;
  std::vector<std::string> allow_host;
  std::vector<std::string> cors_origin;
  std::chrono::milliseconds idle_exit{0};
  std::int64_t usage_days = 400;
  std::string canary_file = "auto";    // a file, "auto" or "off"
  std::string models_dir;              // a folder of models on request; empty: none
  bool models_store = false;           // those of the store are, too
  std::string keep_alive = "forever";  // of models on request, parse_keep_alive()
  bool print_limits = false;
  bool check = false;
};

struct ShownOptions {  // inspect
  bool metadata = false;
  bool tensors = false;
  bool show_chat_template = false;
};

struct TcpOptions {               // serve
  std::string tls_cert, tls_key;  // PEM files; empty: no TLS
};

struct LogOptions {
  std::string log_format = "text";
  std::string log_level = "info";
  std::string log_file;
  std::string access_log = "off";  // a file, "log" or "off"; empty: off
  std::uint32_t max_access_lines_per_second = 100;

  [[nodiscard]] bool has_access_log() const { return !access_log.empty() && access_log != "off"; }
  [[nodiscard]] bool has_access_file() const { return has_access_log() && access_log != "log"; }
};

struct LengthOptions {  // run, chat; of serve for requests that do not say
  std::int64_t predict = -1;
};

struct AnswerOptions : LengthOptions {  // run
  std::int64_t choices = 1;
  std::vector<std::string> logit_bias;
  std::vector<std::string> stop;
  std::vector<std::int64_t> stop_id;
  bool ignore_eos = false;
  std::int64_t logprobs = -1;
  std::chrono::milliseconds timeout{0};
  std::int64_t priority = 0;
  std::string receipt;
};

struct SessionNameOptions {  // run, chat
  std::string session;
};

struct ConversationOptions : SessionNameOptions {  // run
  bool recompute = false;
};

struct MessageOptions {  // run, chat
  std::string system;
  std::string chat_template_kwargs;  // JSON
  std::int64_t reasoning_budget = -1;
};

struct ChatFlagOptions : MessageOptions {  // run
  bool chat = false;
};

struct AnchorOptions {  // session
  bool anchors = false;
};

struct DryRunOptions {  // session, restore
  bool dry_run = false;
};

struct StateOptions {  // backup, restore
  std::string state;   // the directory that "auto" means; empty: state_path()'s
  bool keys = false;
};

struct ReplaceOptions {  // restore
  bool replace = false;
};

struct KeyOptions {                      // key
  std::string key_tenant;                // empty: a tenant of its own
  std::chrono::milliseconds expires{0};  // from now; 0: never
  std::vector<std::string> quota;        // "max-running=4"; each may hold several, separated by commas
};

struct VerboseOptions {  // run, status
  bool verbose = false;
};

struct AnywayOptions {  // verify
  bool anyway = false;
};

struct VectorOptions {  // embed
  std::string pooling;
  bool no_normalise = false;
  bool truncate = false;
};

struct StatusFormatOptions {
  bool prometheus = false;
  bool show_profile = false;
};

struct ScreenOptions {  // top
  std::chrono::milliseconds interval{1000};
  bool once = false;
};

struct PeriodOptions {  // usage
  std::string since;    // empty: all that is kept
  std::string by = "total";
  std::vector<std::string> usage_group;  // each may hold several names, separated by commas
};

struct CaseOptions {  // bench
  std::vector<std::int64_t> n_prompt{512};
  std::vector<std::int64_t> n_gen{64};
  std::vector<std::string> prompt_gen;  // "512,128"
  std::vector<std::int64_t> batch_sizes{1, 8, 32};
  std::vector<std::int64_t> n_depth{0};
  std::int64_t step_tokens = 512;  // most prompt tokens of one step
  std::int64_t repetitions = 5;
  bool overhead = false;
};

struct MachineOptions {  // probe
  bool refresh = false;
  bool quick = false;
  std::string output_format = "text";
};

struct PaceOptions {  // load, like the following five
  double rate = 0;    // requests per second; 0: a closed loop
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
  std::chrono::milliseconds deadline{0};
};

struct PromptOptions {
  std::string prompt_len = "128";
  std::string output_len = "64";
  std::int64_t prefix_len = 0;
  std::int64_t num_prefixes = 1;
  double prefix_share = 1;
  bool warm = false;
  std::string trace;
  std::string trace_out;
  std::string openai;
  std::string api_key;
};

struct FaultOptions {
  double fault_cancel = 0;
  double fault_disconnect = 0;
  double fault_slow_reader = 0;
  double fault_garbage = 0;
  std::chrono::milliseconds fault_pause{2'000};
};

struct GoalOptions {
  bool verify = false;
  std::vector<std::string> goodput;
  double require_goodput = 0;
  std::int64_t max_failed = 0;
  std::int64_t max_refused = -1;
};

struct LoadTenantOptions {
  std::vector<std::string> load_tenants;   // "A:uid=1000,clients=8"
  std::string load_tenants_file;           // one a line
  std::vector<std::string> compare_alone;  // names; "all"
};

struct ReportOptions {
  std::string report;
  std::string html;
};

struct PassageOptions {  // perplexity
  std::int64_t window = 512;
  std::int64_t stride = 0;  // 0: windows side by side
  std::int64_t chunks = 0;  // windows; 0: all
  bool by_position = false;
};

struct LogitsOptions {  // eval
  std::string tokens;
  std::string output;
  std::int64_t greedy = 0;
  std::int64_t chunk = 512;
  std::string compare;  // empty: the same model; "same" below: as the first run
  std::string compare_kv_type = "same";
  std::string compare_kernels = "same";
  std::string compare_ternary = "same";
};

struct DecodeOptions {  // tokenize
  bool decode = false;
};

// In which format a model calls tools.
struct ToolFormatOptions {  // serve, tools
  std::string tool_format;  // empty: that of the model
};

struct ToolFileOptions {  // run, chat, tools
  std::string tools;
};

struct ToolChoiceOptions : ToolFileOptions {  // run
  std::string tool_choice;                    // empty: auto
};

// What an answer has to be: one of these.
struct FormOptions {  // run
  std::string json_schema, json_schema_file, regex, grammar, grammar_file;
  std::vector<std::string> choice;
  bool json_object = false;
};

struct MachineStoreOptions {  // pull, list, rm, prune
  bool system_store = false;
};

struct PullOptions {
  std::string pull_name;  // empty: after the source
  std::string token_file, ca_file;
  bool allow_http = false;
  bool ask = false;
  bool quiet = false;
  std::int64_t pull_connections = 4;
  std::int64_t pull_retries = 8;  // failures in a row
  std::chrono::milliseconds pull_timeout{60'000};
  Bytes store_quota;  // 0: none
};

template <class... Groups>
struct Joined : Groups... {};

// The values of all options, each once: what the parser fills. A subcommand gets its OptionSet of them.
struct Options
    : Joined<HelpOptions, ConfigOptions, EngineOptions, ContextOptions, ProfileOptions, SocketOptions, RequestOptions,
             TokenTextOptions, ControlTokenOptions, EndsOptions, RawOptions, JsonOptions, FormatOptions,
             SessionsDirOptions, ServerOptions, GatewayLimits, ConnectionLimits, LogOptions, AnswerOptions,
             ConversationOptions, ChatFlagOptions, ShownOptions, AnchorOptions, VerboseOptions, VectorOptions,
             StatusFormatOptions, ScreenOptions, CaseOptions, MachineOptions, PaceOptions, PromptOptions, FaultOptions,
             LoadTenantOptions, GoalOptions, ReportOptions, PassageOptions, LogitsOptions, DecodeOptions,
             SpeculationOptions, UsageFileOptions, PeriodOptions, KeysFileOptions, KeyOptions, TcpOptions,
             AnywayOptions, DryRunOptions, StateOptions, ReplaceOptions, ToolFormatOptions, ToolChoiceOptions,
             FormOptions, MachineStoreOptions, PullOptions> {};

// The options of a subcommand.
template <class... Groups>
struct OptionSet : Groups... {
  OptionSet() = default;
  explicit OptionSet(const Options& all) : Groups(all)... {}
};

// As OptionSet, for subcommands that read the configuration file.
template <class... Groups>
using Configured = OptionSet<ConfigOptions, HelpOptions, Groups...>;

using ServeOptions = Configured<EngineOptions, SpeculationOptions, ContextOptions, ProfileOptions, SocketOptions,
                                UsageFileOptions, KeysFileOptions, TcpOptions, SessionsDirOptions, ServerOptions,
                                ToolFormatOptions, LengthOptions, GatewayLimits, ConnectionLimits, LogOptions>;
using RunOptions = Configured<SocketOptions, RequestOptions, SpeculationOptions, AnswerOptions, ConversationOptions,
                              ChatFlagOptions, ToolChoiceOptions, FormOptions, VerboseOptions, TokenTextOptions,
                              ControlTokenOptions, RawOptions, JsonOptions>;
using BenchOptions = Configured<EngineOptions, ContextOptions, ProfileOptions, CaseOptions, FormatOptions>;
using EvalOptions = Configured<EngineOptions, ContextOptions, LogitsOptions, TextOptions, JsonOptions>;
using TokenizeOptions =
    Configured<ModelOptions, TokenTextOptions, ControlTokenOptions, EndsOptions, RawOptions, DecodeOptions>;
using InspectOptions = Configured<ModelOptions, FitOptions, ContextOptions, ParallelOptions, ShownOptions, JsonOptions>;
using StatusOptions = Configured<SocketOptions, StatusFormatOptions, VerboseOptions, JsonOptions>;
using TopOptions = Configured<SocketOptions, ScreenOptions>;
using VersionOptions = OptionSet<HelpOptions, JsonOptions>;
using CompletionOptions = OptionSet<HelpOptions>;
using LoadOptions = Configured<SocketOptions, RequestOptions, PaceOptions, PromptOptions, FaultOptions,
                               LoadTenantOptions, GoalOptions, ReportOptions>;
using ProbeOptions = Configured<ModelOptions, ThreadOptions, MachineOptions>;
using PerplexityOptions = Configured<EngineOptions, PassageOptions, TextOptions, FormatOptions>;
using UsageOptions = Configured<SocketOptions, UsageFileOptions, PeriodOptions, JsonOptions>;
using ChatOptions = Configured<SocketOptions, RequestOptions, SessionNameOptions, MessageOptions, ToolFileOptions,
                               LengthOptions, RawOptions>;
using SessionOptions = Configured<SocketOptions, SessionsDirOptions, AnchorOptions, DryRunOptions, JsonOptions>;
using ModelCommandOptions = Configured<SocketOptions, StoreDirOptions, JsonOptions>;
using DoctorOptions = Configured<ModelOptions, ContextOptions, SocketOptions, JsonOptions>;
using KeyCommandOptions = Configured<KeysFileOptions, KeyOptions, JsonOptions>;
using VerifyOptions = Configured<EngineOptions, SocketOptions, AnywayOptions>;
using BackupOptions = Configured<UsageFileOptions, SessionsDirOptions, KeysFileOptions, StateOptions>;
using RestoreOptions = OptionSet<BackupOptions, ReplaceOptions, DryRunOptions>;
using ToolsCommandOptions = Configured<ModelOptions, ToolFormatOptions, ToolFileOptions, JsonOptions>;
using SchemaCommandOptions = Configured<ModelOptions, JsonOptions>;
using GrammarCommandOptions = Configured<JsonOptions>;
using PullCommandOptions =
    Configured<StoreDirOptions, MachineStoreOptions, PullOptions, BudgetOptions, ContextOptions, JsonOptions>;
using ListOptions = Configured<StoreDirOptions, MachineStoreOptions, JsonOptions>;
using RemoveOptions = Configured<StoreDirOptions, MachineStoreOptions>;
using PruneOptions = Configured<StoreDirOptions, MachineStoreOptions, DryRunOptions>;
using EmbedOptions = Configured<SocketOptions, ModelNameOptions, TokenTextOptions, EndsOptions, VectorOptions>;

}  // namespace troupe::config
