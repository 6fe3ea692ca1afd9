#include "config/options.h"

namespace troupe::config {
namespace {

constexpr std::uint32_t kServe = bit(Command::serve);
constexpr std::uint32_t kRun = bit(Command::run);
constexpr std::uint32_t kBench = bit(Command::bench);
constexpr std::uint32_t kEval = bit(Command::eval);
constexpr std::uint32_t kTokenize = bit(Command::tokenize);
constexpr std::uint32_t kInspect = bit(Command::inspect);
constexpr std::uint32_t kStatus = bit(Command::status);
constexpr std::uint32_t kTop = bit(Command::top);
constexpr std::uint32_t kVersion = bit(Command::version);
constexpr std::uint32_t kLoad = bit(Command::load);
constexpr std::uint32_t kProbe = bit(Command::probe);
constexpr std::uint32_t kPerplexity = bit(Command::perplexity);
constexpr std::uint32_t kEmbed = bit(Command::embed);

constexpr std::uint32_t kAsking = kRun | kLoad;  // send requests
constexpr std::uint32_t kClients = kAsking | kStatus | kTop | kEmbed;
constexpr std::uint32_t kEngines = kServe | kBench | kEval | kPerplexity;  // load a model to compute with it
constexpr std::uint32_t kReaders = kEngines | kTokenize | kInspect;        // open a model file
constexpr std::uint32_t kConfigured = kReaders | kClients | kProbe;
constexpr std::uint32_t kAll = kConfigured | kVersion;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kHours = 3600e3;
constexpr Range kAny{};
constexpr Range within(double min, double max) { return {min, max, false}; }
constexpr Range above(double min, double max) { return {min, max, true}; }

// Names for the last two fields of a row, for options that SIGHUP reloads.
constexpr bool kNotFlagOnly = false;
constexpr bool kReloads = true;

constexpr std::string_view kModel = "Model";
constexpr std::string_view kServer = "Server";
constexpr std::string_view kLimits = "Limits";
constexpr std::string_view kLogging = "Logging";
constexpr std::string_view kRequest = "Request";
constexpr std::string_view kSampling = "Sampling (llama.cpp's defaults)";
constexpr std::string_view kMeasure = "Measurement";
constexpr std::string_view kPace = "Pace";
constexpr std::string_view kPrompts = "Requests";
constexpr std::string_view kFaults = "Faults (shares of the requests, 0 to 1)";
constexpr std::string_view kGoals = "Goals (exit code 1 when one is missed)";
constexpr std::string_view kInputOutput = "Input and output";
constexpr std::string_view kConfiguration = "Configuration";

// The one table. Spellings follow llama.cpp; vLLM's are aliases where they differ. Within a subcommand every spelling
// is unique, and names (keys, variables) are unique throughout: tests/config checks both.
std::vector<Option> make_table() {
  using O = Options;
  return {
      {"model", "-m", &O::model, kReaders | kProbe, kModel, "FILE", kAny,
       "the model, a GGUF file; none: the embedded one (probe: a size to read at; none: 1 GiB)"},
      {"draft", "-md --model-draft", &O::draft, kServe, kModel, "FILE", kAny,
       "draft model for speculative decoding (refused: this version has none)"},
      {"ctx-size", "-c --max-model-len", &O::ctx_size, kServe | kBench | kEval | kInspect, kModel, "TOKENS",
       within(0, 1 << 24), "longest sequence, prompt and answer together; 0: as long as the model was trained for"},
      {"threads", "-t", &O::threads, kEngines | kProbe, kModel, "N", within(0, 1024),
       "compute threads; 0: all allowed cores up to 4, one fewer above"},
      {"kv-type", "-ctk -ctv --cache-type-k --cache-type-v --kv-cache-dtype", &O::kv_type, kEngines, kModel,
       "f16|f32|int8|q8_0", kAny,
       "number format of the KV cache, K and V alike: int8 takes half of f16; q8_0 is another name for it"},
      {"state-type", "", &O::state_type, kEngines | kInspect, kModel, "f32|f16", kAny,
       "how snapshots of recurrent state are kept; f16 takes half, and rounds the state where snapshots are taken"},
      {"state-snapshot-every", "", &O::state_snapshot_every, kEngines, kModel, "TOKENS", within(32, 1 << 20),
       "positions between two snapshots of recurrent state, a multiple of 32; with f32 one more at the end of a "
       "prompt"},
      {"memory", "", &O::memory, kEngines | kInspect, kModel, "SIZE", within(0, 1024.0 * 1024.0 * kGiB),
       "budget for weights, vocabulary and KV cache together; 0: 60 % of what is available"},
      {"kv-blocks", "--num-gpu-blocks-override", &O::kv_blocks, kServe, kModel, "N", within(0, 1 << 30),
       "KV blocks of 32 tokens; 0: what the memory budget leaves"},
      {"kernels", "", &O::kernels, kEngines | kInspect, kModel, "VARIANT", kAny,
       "kernel variant, as `troupe version` lists them; none: the best this CPU has"},
      {"ternary", "", &O::ternary, kEngines, kModel, "auto|multiply|lookup|trits", kAny,
       "how ternary weights are multiplied: with multiply-adds (2.1 bits per weight), by sums in lookup tables (1.75) "
       "or with multiply-adds of packed trits (1.6); answers are the same; auto: measured at load"},
      {"weights-cache", "", &O::weights_cache, kEngines, kModel, "DIR", kAny,
       "keep weights on disk as they are packed, to load them faster next time; auto: weights in $CACHE_DIRECTORY, "
       "$XDG_CACHE_HOME/troupe or ~/.cache/troupe; none, off: pack them each time"},
      {"weights-cache-size", "", &O::weights_cache_size, kEngines, kModel, "SIZE", within(0, 1024.0 * 1024.0 * kGiB),
       "most that the weights cache may take; what was not used for longest goes first; 0: any size"},

      {"socket", "--uds", &O::socket, kServe | kClients, kServer, "PATH", kAny,
       "Unix socket; none: $XDG_RUNTIME_DIR/troupe/troupe.sock, without that directory ~/.troupe/HOST.sock, for root "
       "/run/troupe/troupe.sock (clients try TROUPE_HOST first, then all of them)"},
      {"no-strict-modes", "", &O::no_strict_modes, kServe | kClients, kServer, "", kAny,
       "warn where other users could put another server in the socket's place (a directory that they can write to, a "
       "server of an unexpected user), instead of refusing it"},
      {"alias", "-a --served-model-name", &O::alias, kServe, kServer, "NAME", kAny,
       "the name that clients call the model; none: the one in the file"},
      // Not the same key as `alias`: clients read the server's configuration file too, and may talk to another server.
      {"model-name", "-a --alias --served-model-name", &O::model_name, kAsking | kEmbed, kServer, "NAME", kAny,
       "the model to ask for, by the server's name for it; none: the one that the server has"},
      {"allow-uid", "", &O::allow_uid, kServe, kServer, "UID,...", within(0, 4294967294.0),
       "further users who may connect; none: only the one who runs the server, and root", kNotFlagOnly, kReloads},
      {"allow-gid", "", &O::allow_gid, kServe, kServer, "GID,...", within(0, 4294967294.0),
       "groups whose members may connect", kNotFlagOnly, kReloads},
      {"allow-user", "", &O::allow_user, kServe, kServer, "NAME,...", kAny, "as --allow-uid, by name", kNotFlagOnly,
       kReloads},
      {"allow-group", "", &O::allow_group, kServe, kServer, "NAME,...", kAny, "as --allow-gid, by name", kNotFlagOnly,
       kReloads},
      {"drain-timeout", "--shutdown-timeout --graceful-termination-timeout", &O::drain_timeout, kServe, kServer, "TIME",
       within(0, 24 * kHours), "how long SIGTERM waits for running answers before it ends them"},
      {"idle-exit", "", &O::idle_exit, kServe, kServer, "TIME", within(0, 24 * kHours),
       "end when nobody has been connected for this long, for a service that its socket starts; 0: never", kNotFlagOnly,
       kReloads},
      {"progress-timeout", "", &O::progress_timeout, kServe, kServer, "TIME", within(1, 24 * kHours),
       "how long work may wait without a step ending before health says stalled; more than the longest step"},

      {"parallel", "-np --max-num-seqs", &O::parallel, kServe | kInspect, kLimits, "N", within(1, 4096),
       "sequences computed at once"},
      {"max-step-tokens", "-b --batch-size --max-num-batched-tokens", &O::max_step_tokens, kServe, kLimits, "TOKENS",
       within(1, 65536), "tokens of one step, all sequences together"},
      {"max-queued-requests", "--max-num-queued-reqs", &O::max_queued_requests, kServe, kLimits, "N",
       within(1, 1 << 20), "requests that may wait; more are refused. A guest may have a quarter of them"},
      {"max-parked-requests", "", &O::max_parked_requests, kServe, kLimits, "N", within(1, 1 << 20),
       "requests whose clients do not read; one more ends the slowest reader of the user with most of them. A guest "
       "with a quarter of them gets no new ones"},
      {"max-queued-tokens", "--max-num-queued-tokens", &O::max_queued_tokens, kServe, kLimits, "TOKENS",
       within(1, 4294967296.0),
       "prompt tokens that may wait, all requests together; a guest may have a quarter of them"},
      {"max-queued-texts", "", &O::max_queued_texts, kServe, kLimits, "N", within(1, 65536),
       "texts that may wait to be tokenized or decoded, short prompts apart; a guest may have a quarter of them"},
      {"max-queued-text-bytes", "", &O::max_queued_text_bytes, kServe, kLimits, "SIZE", within(1, 64 * kGiB),
       "these texts, together; a guest may have a quarter of it"},
      {"max-embed-bytes", "", &O::max_embed_bytes, kServe, kLimits, "SIZE", within(1, 64 * kGiB),
       "texts and vectors of all requests for vectors, together; a guest may have a quarter of it"},
      {"max-requests-per-user", "", &O::max_requests_per_user, kServe, kLimits, "N", within(1, 1 << 20),
       "requests of one user, waiting or running"},
      {"max-connections", "", &O::max_connections, kServe, kLimits, "N", within(1, 65536),
       "open connections; some are kept for the user who runs the server", kNotFlagOnly, kReloads},
      {"max-connections-per-uid", "", &O::max_connections_per_uid, kServe, kLimits, "N", within(1, 65536),
       "open connections of one user", kNotFlagOnly, kReloads},
      {"max-streams", "", &O::max_streams, kServe, kLimits, "N", within(1, 65536),
       "requests at once on one connection"},
      {"max-frame-bytes", "", &O::max_frame_bytes, kServe, kLimits, "SIZE", within(4096, 16.0 * 1024 * 1024),
       "longest message on the socket"},
      {"max-outbox-bytes", "", &O::max_outbox_bytes, kServe, kLimits, "SIZE", within(4096, kGiB),
       "output that may wait for one client that does not read, before it is disconnected", kNotFlagOnly, kReloads},
      {"max-buffer-bytes", "", &O::max_buffer_bytes, kServe, kLimits, "SIZE", within(32.0 * 1024 * 1024, 1024 * kGiB),
       "half of it for messages half read, half for answers unread, of all clients together; a guest may have a "
       "quarter of each"},
      {"max-frames-per-second", "", &O::max_frames_per_second, kServe, kLimits, "N", within(1, 1e9),
       "messages that one user's clients may send in a second; what comes faster is read later", kNotFlagOnly,
       kReloads},
      {"max-questions-per-second", "", &O::max_questions_per_second, kServe, kLimits, "N", within(1, 1e9),
       "questions for health, status and models that one user may ask in a second; more are refused", kNotFlagOnly,
       kReloads},
      {"stall-timeout", "", &O::stall_timeout, kServe, kLimits, "TIME", within(1, 24 * kHours),
       "how long a client may read nothing before it is disconnected", kNotFlagOnly, kReloads},
      {"hello-timeout", "", &O::hello_timeout, kServe, kLimits, "TIME", within(1, 24 * kHours),
       "how long a new connection may take to say hello", kNotFlagOnly, kReloads},
      {"idle-timeout", "", &O::idle_timeout, kServe, kLimits, "TIME", within(0, 365 * 24 * kHours),
       "end connections that ask for nothing this long; 0: never", kNotFlagOnly, kReloads},
      {"tokenizer-threads", "", &O::tokenizer_threads, kServe, kLimits, "N", within(1, 64),
       "threads that turn long texts into tokens; one more is kept for texts up to 16 KiB"},

      {"log-format", "", &O::log_format, kServe, kLogging, "text|json", kAny,
       "one line of text, or of JSON, per event"},
      {"log-level", "", &O::log_level, kServe, kLogging, "trace|debug|info|warn|error|off", kAny,
       "least important event that is logged", kNotFlagOnly, kReloads},
      {"log-file", "", &O::log_file, kServe, kLogging, "FILE", kAny,
       "append the log to this file, opened anew by SIGHUP; none: to stderr"},

      {"predict", "-n --n-predict --max-tokens", &O::predict, kRun, kRequest, "TOKENS", within(-1, 1 << 24),
       "longest answer; -1: until the model ends or the context is full"},
      {"choices", "--n-choices --num-return-sequences", &O::choices, kRun, kRequest, "N", within(1, 64),
       "answers to one prompt, which is computed once; each is drawn by itself (with --temp 0 all are the same). "
       "--json "
       "prints {\"choices\": [...]} for more than one"},
      {"stop", "-r --reverse-prompt", &O::stop, kRun, kRequest, "TEXT", kAny,
       "end the answer before this text; may be repeated"},
      {"stop-id", "", &O::stop_id, kRun, kRequest, "ID,...", within(0, 2147483647), "end the answer at these tokens"},
      {"ignore-eos", "", &O::ignore_eos, kRun, kRequest, "", kAny, "never choose an end-of-answer token"},
      {"logprobs", "", &O::logprobs, kRun, kRequest, "N", within(-1, 20),
       "with --json, and only there: logarithms of the probabilities of the chosen and the N likeliest tokens; -1: "
       "none"},
      {"timeout", "", &O::timeout, kRun, kRequest, "TIME", within(0, 24 * kHours),
       "end the answer with what it has after this long, and with exit code 1; 0: never"},
      {"priority", "", &O::priority, kRun, kRequest, "N", within(-1000, 1000), "lower is served earlier"},
      {"scope", "", &O::scope, kAsking, kRequest, "NAME", kAny,
       "who shares the prefix cache: \"public\" all users, another name a part of yours; none: you (load: a new one)"},
      {"special", "", &O::special, kRun | kTokenize | kEmbed, kRequest, "", kAny,
       "text of control tokens (\"<s>\") becomes those tokens"},

      {"temp", "--temperature", &O::temp, kAsking, kSampling, "T", within(0, 100),
       "temperature; 0: always the likeliest token"},
      {"seed", "-s", &O::seed, kAsking, kSampling, "N", kAny,
       "same seed, same answer; -1: drawn anew each time (load: 0)"},
      {"top-k", "", &O::top_k, kAsking, kSampling, "K", within(0, 2147483647),
       "choose among the K likeliest tokens; 0: all"},
      {"top-p", "", &O::top_p, kAsking, kSampling, "P", above(0, 1),
       "choose among the likeliest tokens that together have probability P"},
      {"min-p", "", &O::min_p, kAsking, kSampling, "P", within(0, 1),
       "drop tokens less likely than P times the likeliest"},
      {"repeat-penalty", "--repetition-penalty", &O::repeat_penalty, kAsking, kSampling, "X", above(0, 100),
       "make repeated tokens less likely by this factor; 1: off"},
      {"repeat-last-n", "", &O::repeat_last_n, kAsking, kSampling, "N", within(-1, 1 << 24),
       "tokens that penalties look back over; -1: all, 0: none"},
      {"presence-penalty", "", &O::presence_penalty, kAsking, kSampling, "X", within(-100, 100),
       "subtracted from the logit of a token that has occurred"},
      {"frequency-penalty", "", &O::frequency_penalty, kAsking, kSampling, "X", within(-100, 100),
       "subtracted for each time that a token has occurred"},
      {"logit-bias", "-l", &O::logit_bias, kRun, kSampling, "ID=BIAS", kAny,
       "add BIAS to the logit of token ID, also written ID+BIAS or ID-BIAS; may be repeated"},

      {"n-prompt", "-p", &O::n_prompt, kBench, kMeasure, "TOKENS,...", within(0, 1 << 24),
       "prompt lengths whose prefill is measured; 0: none"},
      {"n-gen", "-n", &O::n_gen, kBench, kMeasure, "TOKENS,...", within(0, 1 << 24),
       "answer lengths whose decoding is measured; 0: none"},
      {"prompt-gen", "-pg", &O::prompt_gen, kBench, kMeasure, "PP,TG", kAny,
       "also measure a prompt of PP tokens and an answer of TG together; may be repeated"},
      {"batch-sizes", "-b", &O::batch_sizes, kBench, kMeasure, "N,...", within(1, 4096), "sequences decoded at once"},
      {"n-depth", "-d", &O::n_depth, kBench, kMeasure, "TOKENS,...", within(0, 1 << 24),
       "tokens that are in the cache before the measurement begins"},
      {"step-tokens", "-ub --ubatch-size", &O::step_tokens, kBench, kMeasure, "TOKENS", within(1, 65536),
       "tokens of a prompt that one step computes, as a server's --max-step-tokens; longer prompts take several steps"},
      {"repetitions", "-r", &O::repetitions, kBench, kMeasure, "N", within(1, 1000),
       "measured rounds, after one that warms up"},
      {"overhead", "", &O::overhead, kBench, kMeasure, "", kAny,
       "measure the time between the kernels of two steps instead, through a server's actors, for each of -b"},
      {"profile", "", &O::profile, kBench | kServe, kMeasure, "", kAny,
       "measure the time of each operation of a step, of its joins and layers: bench prints it behind its table, of a "
       "server `troupe status --profile` shows it, and its log at the end"},
      {"window", "-c --ctx-size", &O::window, kPerplexity, kMeasure, "TOKENS", within(1, 1 << 24),
       "length of the passages that the text is cut into"},
      {"stride", "--ppl-stride", &O::stride, kPerplexity, kMeasure, "TOKENS", within(0, 1 << 24),
       "passages begin this far apart, are half of it longer, and that many tokens of each are scored; 0: passages "
       "side "
       "by side, each scored behind its middle"},
      {"chunks", "", &O::chunks, kPerplexity, kMeasure, "N", within(0, 1 << 24), "passages that are measured; 0: all"},
      {"by-position", "", &O::by_position, kPerplexity, kMeasure, "", kAny,
       "also show how well the tokens are predicted at each part of the window"},
      {"format", "-o", &O::format, kBench | kPerplexity, kMeasure, "md|json", kAny, "a table, or JSON"},

      {"refresh", "", &O::refresh, kProbe, kMeasure, "", kAny, "measure again, whatever is kept"},
      {"quick", "", &O::quick, kProbe, kMeasure, "", kAny,
       "shorter rounds, a smaller buffer, no 4 KiB pages: some three seconds instead of ten"},
      {"output-format", "-o", &O::output_format, kProbe, kMeasure, "text|json", kAny, "tables, or JSON"},

      {"rate", "--request-rate", &O::rate, kLoad, kPace, "R", within(0, 1e6),
       "requests per second that arrive whether others have ended or not (open loop); 0: each client sends its next "
       "request when its last has ended (closed loop)"},
      {"burstiness", "", &O::burstiness, kLoad, kPace, "X", within(0, 1e6),
       "with --rate: shape of the gamma-distributed intervals; 1: Poisson, below: in bursts; 0: constant intervals"},
      {"clients", "--max-concurrency", &O::clients, kLoad, kPace, "N", within(0, 100000),
       "requests at once; 0: 8 in a closed loop, any number in an open one"},
      {"num-prompts", "--num-requests", &O::num_prompts, kLoad, kPace, "N", within(0, 10'000'000),
       "requests of the run; 0: as many as --duration allows, or 100"},
      {"duration", "", &O::duration, kLoad, kPace, "TIME", within(0, 1000 * kHours),
       "send nothing after this; 0: --num-prompts alone ends the run"},
      {"ramp-up", "", &O::ramp_up, kLoad, kPace, "TIME", within(0, 24 * kHours),
       "rise from --ramp-from to the full rate or number of clients in this time"},
      {"ramp-from", "--ramp-up-start-rps", &O::ramp_from, kLoad, kPace, "X", within(0, 1e6),
       "rate or number of clients that --ramp-up begins with"},
      {"think-time", "", &O::think_time, kLoad, kPace, "TIME", within(0, 24 * kHours),
       "closed loop: how long a client waits before its next request"},
      {"connections", "", &O::connections, kLoad, kPace, "N", within(0, 4096),
       "connections that share the requests; 0: one per client, at most 32"},
      {"max-retries", "--retry", &O::max_retries, kLoad, kPace, "N", within(0, 100),
       "send a refused request again, up to N times, after as long as the server says"},
      {"patience", "", &O::patience, kLoad, kPace, "TIME", within(1, 24 * kHours),
       "give up when nothing comes from the server for this long"},

      {"prompt-len", "--random-input-len --input-len", &O::prompt_len, kLoad, kPrompts, "LENGTHS", kAny,
       "tokens of a prompt after its shared prefix: 128, 32..256, normal:MEAN,DEVIATION or lognormal:MEAN,DEVIATION, "
       "the last two cut to the model's context"},
      {"output-len", "-n --random-output-len", &O::output_len, kLoad, kPrompts, "LENGTHS", kAny,
       "tokens of an answer, in the same form; the model does not end it earlier"},
      {"prefix-len", "--random-prefix-len", &O::prefix_len, kLoad, kPrompts, "TOKENS", within(0, 1 << 24),
       "length of the shared prefixes; 0: there are none"},
      {"num-prefixes", "", &O::num_prefixes, kLoad, kPrompts, "N", within(1, 1 << 20), "different shared prefixes"},
      {"prefix-share", "", &O::prefix_share, kLoad, kPrompts, "SHARE", within(0, 1),
       "share of the requests that begin with a shared prefix"},
      {"warm", "", &O::warm, kLoad, kPrompts, "", kAny,
       "run every shared prefix once before the clock starts; else the run begins with nothing cached"},
      {"trace", "", &O::trace, kLoad, kPrompts, "FILE", kAny,
       "send the requests of this JSONL file, at its times if --clients is not given (docs/load.md)"},
      {"trace-out", "", &O::trace_out, kLoad, kPrompts, "FILE", kAny, "write what was sent as such a file"},
      {"openai", "", &O::openai, kLoad, kPrompts, "URL", kAny,
       "drive an OpenAI-compatible server instead: http://HOST:PORT or http+unix:///PATH"},
      {"api-key", "", &O::api_key, kLoad, kPrompts, "KEY", kAny, "for --openai"},

      {"fault-cancel", "", &O::fault_cancel, kLoad, kFaults, "SHARE", within(0, 1),
       "cancel at a random token, or before the first"},
      {"fault-disconnect", "", &O::fault_disconnect, kLoad, kFaults, "SHARE", within(0, 1),
       "close the connection at a random moment"},
      {"fault-slow-reader", "", &O::fault_slow_reader, kLoad, kFaults, "SHARE", within(0, 1),
       "stop reading, or granting credit, for --fault-pause"},
      {"fault-garbage", "", &O::fault_garbage, kLoad, kFaults, "SHARE", within(0, 1),
       "send bytes that are not the protocol on a connection beside the request"},
      {"fault-pause", "", &O::fault_pause, kLoad, kFaults, "TIME", within(0, 24 * kHours),
       "how long a slow reader stops"},

      {"verify", "", &O::verify, kLoad, kGoals, "", kAny, "afterwards run each request alone, and compare every token"},
      {"goodput", "", &O::goodput, kLoad, kGoals, "KEY:MS", kAny,
       "count the requests within limits: ttft:500 tpot:50 e2el:5000, in milliseconds"},
      {"require-goodput", "", &O::require_goodput, kLoad, kGoals, "SHARE", within(0, 1),
       "least share of the undisturbed requests that must be within the limits of --goodput"},
      {"max-failed", "", &O::max_failed, kLoad, kGoals, "N", within(-1, 1e9),
       "requests that may break on the server's side or lose their connection; -1: any number"},
      {"max-refused", "", &O::max_refused, kLoad, kGoals, "N", within(-1, 1e9),
       "requests that may be refused; -1: any number"},
      {"report", "-o --save-result", &O::report, kLoad, kInputOutput, "FILE.json", kAny,
       "write all figures and one row per request as JSON, with the keys of `vllm bench serve`"},
      {"html", "", &O::html, kLoad, kInputOutput, "FILE.html", kAny, "write a page with curves and a timeline"},

      {"tokens", "", &O::tokens, kEval, kInputOutput, "IDS.json", kAny, "the token ids to evaluate: a JSON array"},
      {"output", "-o", &O::output, kEval, kInputOutput, "LOGITS.f32", kAny,
       "logits of every position: raw little-endian float32 [tokens, vocabulary]"},
      {"greedy", "", &O::greedy, kEval, kInputOutput, "N", within(0, 1 << 24),
       "print the N likeliest continuation tokens, one after another, as a JSON array"},
      {"chunk", "", &O::chunk, kEval, kInputOutput, "TOKENS", within(1, 1 << 24),
       "tokens computed in one step; the logits are the same bits for any number"},
      {"compare", "", &O::compare, kEval, kInputOutput, "FILE", kAny,
       "compare with the logits of this model over the same tokens; none: with the same one, if another --compare-... "
       "asks for it"},
      {"compare-kv-type", "", &O::compare_kv_type, kEval, kInputOutput, "same|f16|f32|int8|q8_0", kAny,
       "compare with a run that has this KV cache"},
      {"compare-kernels", "", &O::compare_kernels, kEval, kInputOutput, "VARIANT", kAny,
       "compare with a run of this kernel variant; same: that of --kernels"},
      {"compare-ternary", "", &O::compare_ternary, kEval, kInputOutput, "same|auto|multiply|lookup|trits", kAny,
       "compare with a run that multiplies ternary weights like this"},
      {"decode", "", &O::decode, kTokenize, kInputOutput, "", kAny, "turn token ids into text instead"},
      {"pooling", "", &O::pooling, kEmbed, kRequest, "NAME", kAny,
       "what becomes of the tokens' vectors: mean, cls (the first one) or last; none: the model's own"},
      {"no-normalise", "--no-normalize", &O::no_normalise, kEmbed, kRequest, "", kAny,
       "leave the vectors as long as they are, instead of making their length 1"},
      {"no-bos", "", &O::no_bos, kTokenize | kEmbed, kInputOutput, "", kAny,
       "do not add the tokens that the vocabulary puts at the beginning and the end"},
      {"file", "-f", &O::file, kRun | kTokenize | kEmbed | kEval | kPerplexity, kInputOutput, "FILE", kAny,
       "read the text from this file (embed: a text on each line); -: from stdin"},
      {"ids", "", &O::ids, kRun | kTokenize | kEmbed, kInputOutput, "", kAny,
       "token ids instead of text: as the prompt (run), as the texts (embed), as the whole output (tokenize)"},
      {"json", "", &O::json, kRun | kStatus | kVersion | kInspect | kEval, kInputOutput, "", kAny, "print JSON"},
      {"raw", "", &O::raw, kRun | kTokenize, kInputOutput, "", kAny,
       "print the text's control characters on a terminal too, which obeys them, instead of showing them"},
      {"prometheus", "", &O::prometheus, kStatus, kInputOutput, "", kAny, "print Prometheus text"},
      {"show-profile", "--profile", &O::show_profile, kStatus, kInputOutput, "", kAny,
       "show where the time of the server's steps went, by operation, join and layer (of a server with --profile)"},
      {"interval", "", &O::interval, kTop, kInputOutput, "TIME", within(50, kHours), "between two looks at the server"},
      {"once", "", &O::once, kTop, kInputOutput, "", kAny, "print one screen and stop"},
      {"verbose", "-v", &O::verbose, kRun, kInputOutput, "", kAny,
       "report tokens per second, time to the first token and cached tokens on stderr"},

      {"config", "", &O::config, kConfigured, kConfiguration, "FILE", kAny,
       "configuration file; none: $XDG_CONFIG_HOME/troupe/troupe.toml, else /etc/troupe/troupe.toml"},
      {"print-config", "", &O::print_config, kConfigured, kConfiguration, "", kAny,
       "print the configuration in effect, as a configuration file, and stop", true},
      {"print-limits", "", &O::print_limits, kServe, kConfiguration, "", kAny,
       "print how much memory each limit allows, and all together, and stop", true},
      {"help", "-h", &O::help, kAll, kConfiguration, "", kAny, "print this text and stop", true},
  };
}

}  // namespace

std::span<const Option> option_table() {
  static const std::vector<Option> table = make_table();
  return table;
}

}  // namespace troupe::config
