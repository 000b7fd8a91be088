//! The table of keys: name, kind, meaning, what an untrusted project may not do with it, and how
//! it is shown.
//!
//! Owns what the configuration file may contain. Defaults are not here: `Config::default()` has
//! them. Must not know files or merging.

use serde_json::Value;

/// What a text has to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Anything but blank.
    Any,
    /// Anything, blank included.
    Free,
    /// `provider/model-id`.
    Model,
    /// An http or https URL.
    Url,
    /// The name of an environment variable (so that a key pasted here is refused, not shown).
    EnvName,
    /// A name without `/` and white space.
    Id,
    /// The path of a file, absolute or in the home directory (so that a key pasted here is refused, not shown).
    File,
    /// The name of a request header.
    HeaderName,
    /// The value of a request header.
    HeaderValue,
}

/// What a value has to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// true or false.
    Flag,
    /// true or false, or true with these settings.
    Switch(&'static [Key]),
    /// A whole number in a range, both ends included.
    Whole(u64, u64),
    /// A number from 0 up to the second end; the bool says whether that end is included.
    Number(f64, bool),
    /// A text.
    Text(Form),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of texts; the bool says whether lists of several files are united.
    Texts(Form, bool),
    /// An object with these keys; the bool says whether unknown ones are passed over in silence.
    Object(&'static [Key], bool),
    /// An object with names of this form; the key says what their values are.
    Map(Form, &'static Key),
    /// An object with any content.
    Anything,
}

/// What a project file may not do before the project is trusted. The text says why.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gate {
    /// Everything is allowed.
    Open,
    /// Setting or deleting the key.
    Always(&'static str),
    /// Setting the key to this word.
    Word(&'static str, &'static str),
    /// Deleting what a lower file set, or turning it off or down.
    Lowering(&'static str),
    /// Deleting what a lower file turned off, or turning it on again.
    Raising(&'static str),
}

/// How `glrs doctor` shows a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Show {
    /// As it is.
    Plain,
    /// Never.
    Secret,
    /// The program's name only.
    Command,
    /// Without user, password and query.
    Url,
    /// As it is, unless it looks like the secret itself in place of its name.
    Name,
    /// As it is, unless its name or looks say secret.
    ByName,
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub doc: &'static str,
    pub gate: Gate,
    pub show: Show,
}

const fn key(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, kind, doc, gate: Gate::Open, show: Show::Plain }
}

impl Key {
    const fn gate(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    const fn show(self, show: Show) -> Self {
        Self { show, ..self }
    }

    /// The key of a child, if the table knows it.
    pub fn child(&self, name: &str) -> Option<&'static Key> {
        match self.kind {
            Kind::Object(keys, _) | Kind::Switch(keys) => keys.iter().find(|k| k.name == name),
            Kind::Map(_, value) => Some(value),
            _ => None,
        }
    }

    /// Why an untrusted project may not delete this key: its own gate, or that of anything in it.
    pub fn deletion(&self) -> Option<&'static str> {
        match (self.gate, self.kind) {
            (Gate::Always(why) | Gate::Lowering(why) | Gate::Raising(why), _) => Some(why),
            (_, Kind::Object(keys, _)) => keys.iter().find_map(Key::deletion),
            (_, Kind::Map(_, value)) => value.deletion(),
            _ => None,
        }
    }

    /// Why an untrusted project may not give this key this value over the lower one.
    pub fn refusal(&self, value: &Value, lower: Option<&Value>) -> Option<&'static str> {
        if value.is_null() {
            return lower.and_then(|_| self.deletion());
        }
        match self.gate {
            Gate::Always(why) => Some(why),
            Gate::Word(word, why) if value == word => Some(why),
            Gate::Lowering(why) if *value == Value::Bool(false) && lower.is_some_and(is_on) => Some(why),
            // A plain `true` takes away what the settings of a switch add to it.
            Gate::Lowering(why) if *value == Value::Bool(true) && lower.is_some_and(Value::is_object) => Some(why),
            Gate::Raising(why) if *value == Value::Bool(true) && lower == Some(&Value::Bool(false)) => Some(why),
            _ => None,
        }
    }
}

/// Whether a switch is on.
fn is_on(value: &Value) -> bool {
    *value == Value::Bool(true) || value.is_object()
}

impl Form {
    /// What is expected, in words.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Any => "a text that is not blank",
            Self::Free => "a text",
            Self::Model => "\"provider/model-id\"",
            Self::Url => "a URL that starts with http:// or https://",
            Self::EnvName => "the name of an environment variable (not the key itself)",
            Self::Id => "a name without / and white space",
            Self::File => "the path of a file that starts with / or ~/ (not the key itself)",
            Self::HeaderName => "the name of a header",
            Self::HeaderValue => "a header value without control characters",
        }
    }

    /// The same as a pattern, for the schema.
    pub fn pattern(self) -> Option<&'static str> {
        match self {
            Self::Any => Some(r"\S"),
            Self::Free => None,
            Self::Model => Some(r"^[^/\s]+/\S+$"),
            Self::Url => Some(r"^[Hh][Tt][Tt][Pp][Ss]?://[^\s/?#]\S*$"),
            Self::EnvName => Some("^[A-Za-z_][A-Za-z0-9_]*$"),
            Self::Id => Some(r"^[^/\s]+$"),
            Self::File => Some("^~?/."),
            Self::HeaderName => Some("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"),
            Self::HeaderValue => Some(r"^[^\u0000-\u0008\u000a-\u001f\u007f]*$"),
        }
    }

    /// Whether a text fits.
    pub fn fits(self, text: &str) -> bool {
        let bare = |s: &str| !s.is_empty() && !s.contains(char::is_whitespace);
        match self {
            Self::Any => !text.trim().is_empty(),
            Self::Free => true,
            Self::Model => text.split_once('/').is_some_and(|(provider, model)| bare(provider) && bare(model)),
            Self::Url => {
                bare(text)
                    && reqwest::Url::parse(text)
                        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            }
            Self::EnvName => {
                text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                    && text.bytes().next().is_some_and(|b| !b.is_ascii_digit())
            }
            Self::Id => bare(text) && !text.contains('/'),
            Self::File => text.strip_prefix('~').unwrap_or(text).strip_prefix('/').is_some_and(|rest| !rest.is_empty()),
            Self::HeaderName => {
                !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+.^_`|~-".contains(&b))
            }
            Self::HeaderValue => !text.bytes().any(|b| (b < 0x20 && b != b'\t') || b == 0x7f),
        }
    }
}

/// Largest whole number every JSON reader keeps exactly.
const MAX: u64 = (1 << 53) - 1;
/// Longest time in milliseconds: 24 days, what fits into 31 bits.
const MAX_MS: u64 = i32::MAX as u64;

const DELIVERY: Kind = Kind::Choice(&["one-at-a-time", "all"]);
const RUNS: &str = "it runs commands";
const SENDS: &str = "it decides what is sent where";
const ALLOWS: &str = "it lets things run without asking";
const GUARDS: &str = "it takes a safeguard away";
const HANDS: &str = "it hands keys to commands";
const DELETES: &str = "it deletes sessions";

const OPTIONS: Key = key("requestOptions", Kind::Anything, "Merged into the body of each request.")
    .gate(Gate::Always(SENDS))
    .show(Show::ByName);
const HEADER: Key = key("<name>", Kind::Text(Form::HeaderValue), "Its value.").show(Show::Secret);
const HEADERS: Key = key("headers", Kind::Map(Form::HeaderName, &HEADER), "Extra request headers.");

const METADATA: &[Key] = &[
    key("name", Kind::Text(Form::Any), "Name for people."),
    key("context", Kind::Whole(1, MAX), "Context window in tokens."),
    key("output", Kind::Whole(1, MAX), "Most output tokens."),
    key("inputCost", Kind::Number(f64::MAX, true), "US dollars per million input tokens."),
    key("outputCost", Kind::Number(f64::MAX, true), "US dollars per million output tokens."),
    key("variants", Kind::Texts(Form::Any, false), "Reasoning efforts it takes."),
    key("images", Kind::Flag, "Whether it takes images; taken to when nothing is known."),
];

const MODEL: Key = key(
    "<model>",
    Kind::Object(
        &[
            key("metadata", Kind::Object(METADATA, false), "What is known of it; the rest comes from the catalogue."),
            OPTIONS,
        ],
        false,
    ),
    "A model.",
);

const PROVIDER: Key = key(
    "<id>",
    Kind::Object(
        &[
            key("api", Kind::Text(Form::Url), "Base URL. Needed unless the provider is built in.")
                .gate(Gate::Always(SENDS))
                .show(Show::Url),
            key(
                "dialect",
                Kind::Choice(&["anthropic", "openai", "responses", "gemini"]),
                "How it is talked to; openai (Chat Completions) unless the provider is built in.",
            ),
            key("keyEnv", Kind::Text(Form::EnvName), "Name of the environment variable that has the key.")
                .gate(Gate::Always(SENDS))
                .show(Show::Name),
            key(
                "keyFile",
                Kind::Text(Form::File),
                "File that holds the key and nothing else, and that only you may read (chmod 600).",
            )
            .gate(Gate::Always(SENDS)),
            key("keyCommand", Kind::Text(Form::Any), "Command that prints the key.")
                .gate(Gate::Always(RUNS))
                .show(Show::Command),
            HEADERS.gate(Gate::Always(SENDS)),
            OPTIONS,
            key("models", Kind::Map(Form::Any, &MODEL), "Its models by id."),
        ],
        false,
    ),
    "A provider.",
);

const SERVER: Key = key(
    "<name>",
    Kind::Object(
        &[
            key(
                "type",
                Kind::Choice(&["stdio", "http", "sse", "streamable-http"]),
                "Transport; stdio with a command, http with a URL.",
            ),
            key("command", Kind::Text(Form::Any), "Program to start.").show(Show::Command),
            key("args", Kind::Texts(Form::Free, false), "Its arguments.").show(Show::Secret),
            key(
                "env",
                Kind::Map(Form::Any, &key("<name>", Kind::Text(Form::Free), "Its value.").show(Show::Secret)),
                "Environment variables it gets besides the session's.",
            ),
            key("cwd", Kind::Text(Form::Any), "Directory it starts in; the session's if absent."),
            key("url", Kind::Text(Form::Any), "Where a remote server answers.").show(Show::Url),
            HEADERS,
        ],
        true,
    ),
    "An MCP server.",
);

const MCP_SERVERS: Key =
    key("mcpServers", Kind::Map(Form::Any, &SERVER), "MCP servers by name, as in .mcp.json (which is read too).")
        .gate(Gate::Always(RUNS));

const DISABLE_TOOLS: Key =
    key("disable", Kind::Texts(Form::Any, true), "Names of tools the model is not offered; united over all files.")
        .gate(Gate::Lowering(GUARDS));
const TOOLS_ENV: Key = key(
    "env",
    Kind::Texts(Form::EnvName, true),
    "Variables with providers' keys that commands are given all the same; united over all files.",
)
.gate(Gate::Always(HANDS))
.show(Show::Name);
const DISABLE_EXTENSIONS: Key =
    key("disable", Kind::Texts(Form::Any, true), "Names of extensions that are off; united over all files.")
        .gate(Gate::Lowering(GUARDS));

/// A configuration file.
pub(super) const ROOT: Key = key(
    "",
    Kind::Object(
        &[
            key("$schema", Kind::Text(Form::Any), "Where an editor finds this schema; glrs passes it over."),
            key(
                "model",
                Kind::Text(Form::Model),
                "Model of new sessions; absent: the first that works, else builtin/rehearsal.",
            ),
            key("variant", Kind::Text(Form::Any), "Reasoning effort of new sessions."),
            key(
                "compactAt",
                Kind::Number(1.0, false),
                "Fraction of the window at which it compacts; 0 turns automatic compaction off.",
            ),
            key(
                "compactWindow",
                Kind::Whole(1, MAX),
                "Most tokens that are planned with; never more than the model has.",
            ),
            key("compactModel", Kind::Text(Form::Model), "Model that writes briefs; absent: the session's."),
            key("keepTurns", Kind::Whole(0, MAX), "Recent user turns a compaction keeps."),
            key("shrinkAt", Kind::Number(1.0, true), "Fullness from which one recent turn is enough."),
            key(
                "micro",
                Kind::Object(
                    &[
                        key("bytes", Kind::Whole(0, MAX), "Smallest result that is replaced by a marker, in bytes."),
                        key("keep", Kind::Whole(0, MAX), "So many newest results stay."),
                        key(
                            "delegationBytes",
                            Kind::Whole(0, MAX),
                            "The same for results of delegated work, in bytes.",
                        ),
                    ],
                    false,
                ),
                "Micro-compaction.",
            ),
            key("steeringMode", DELIVERY, "How several waiting steering messages are delivered."),
            key("followUpMode", DELIVERY, "How several queued messages are delivered."),
            key("toolTimeoutMs", Kind::Whole(1, MAX_MS), "Milliseconds a tool call may take."),
            key("idleTimeoutMs", Kind::Whole(1, MAX_MS), "Milliseconds a model's stream may say nothing."),
            key("maxSteps", Kind::Whole(1, 1_000_000), "Most steps of a turn."),
            key("mode", Kind::Choice(&["ask", "edits", "all"]), "Permission mode of new sessions.")
                .gate(Gate::Word("all", ALLOWS)),
            key(
                "allow",
                Kind::Texts(Form::Any, true),
                "Rules that allow, such as bash(git status*) or write(src/**); united over all files.",
            )
            .gate(Gate::Always(ALLOWS)),
            key("deny", Kind::Texts(Form::Any, true), "Rules that deny, before all others; united over all files.")
                .gate(Gate::Lowering(GUARDS)),
            key(
                "sandbox",
                Kind::Switch(&[key(
                    "network",
                    Kind::Flag,
                    "Whether commands may make and accept TCP connections; true unless told.",
                )
                .gate(Gate::Raising(GUARDS))]),
                "Whether the agent's commands run in a sandbox: they write only below the working directory and their \
                 temporary directory (Linux).",
            )
            .gate(Gate::Lowering(GUARDS)),
            key("vitals", Kind::Flag, "Whether the model is told time, deadline and fullness."),
            key(
                "sessionTmp",
                Kind::Flag,
                "Whether tools get a private temporary directory; false keeps the inherited one.",
            ),
            key("deadlineMinutes", Kind::Whole(1, 525_600), "Soft deadline of a turn, in minutes; absent: none."),
            key(
                "tools",
                Kind::Object(&[DISABLE_TOOLS, TOOLS_ENV], false),
                "Tools that are switched off, and what commands may see.",
            ),
            key(
                "tasks",
                Kind::Object(
                    &[key("parallel", Kind::Whole(1, 64), "How many tasks of a turn run at once; further ones wait.")],
                    false,
                ),
                "Tasks that the agent gives to sessions of their own.",
            ),
            key(
                "extensions",
                Kind::Object(
                    &[
                        DISABLE_EXTENSIONS,
                        key(
                            "settings",
                            Kind::Map(
                                Form::Any,
                                &key("<extension>", Kind::Anything, "Its settings.").show(Show::ByName),
                            ),
                            "Settings by extension.",
                        ),
                    ],
                    false,
                ),
                "Extensions: which are off, and their settings.",
            ),
            MCP_SERVERS,
            key(
                "hooks",
                Kind::Map(Form::Any, &HOOK),
                "Commands by lifecycle event; each gets JSON on stdin, exit 2 blocks where the event allows.",
            )
            .gate(Gate::Always(RUNS)),
            key(
                "retention",
                Kind::Object(
                    &[
                        key("days", Kind::Whole(1, MAX), "Days after its last change at which a session may go."),
                        key("sessions", Kind::Whole(1, MAX), "Most sessions that are kept."),
                        key("traceDays", Kind::Whole(1, MAX), "Days after which a trace may go."),
                        key("traceBytes", Kind::Whole(1, MAX), "Most bytes of traces that are kept."),
                    ],
                    false,
                ),
                "What is deleted by age and number. Absent: nothing is deleted. {} turns it on with the defaults.",
            )
            .gate(Gate::Always(DELETES)),
            key(
                "providers",
                Kind::Map(Form::Id, &PROVIDER),
                "Providers by id; unknown ids are OpenAI-compatible and need api.",
            ),
        ],
        false,
    ),
    "Configuration of glrs. Nearest file wins; objects are merged, null deletes what a lower file set.",
);

const HOOK: Key = key("<event>", Kind::Texts(Form::Any, false), "Commands, run in order.").show(Show::Command);

/// `.mcp.json`: other programs' file, of which one key concerns us.
pub(super) const MCP_FILE: Key = key("", Kind::Object(&[MCP_SERVERS], true), "MCP servers of a project.");

/// Ids of the providers that need no `api`.
pub(super) const BUILTIN_PROVIDERS: &[&str] = &[
    "anthropic",
    "openai",
    "azure",
    "google",
    "xai",
    "openrouter",
    "groq",
    "mistral",
    "deepseek",
    "together",
    "cerebras",
    "fireworks",
    "ollama",
    "llamacpp",
    "lmstudio",
    "builtin",
];
