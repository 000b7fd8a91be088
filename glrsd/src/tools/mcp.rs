//! Tools of MCP servers, as tools of ours.
//!
//! Owns: one call from asking to its result, and the words around it. A server's word that a tool
//! changes nothing lets it run beside others, never unasked. Processes, connections and names are
//! [`crate::mcp`]'s.

use super::output::Bounded;
use super::{Outcome, Tool, ToolCtx, ToolSpec, files, input};
use crate::mcp::{Call, CallError, Server, ToolInfo};
use crate::policy::Effect;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Lines of progress on their way to the session. At the bound they are left out: the next one
/// tells how far it is.
const PROGRESS: usize = 64;

/// Whether a name is one of a server's tool.
pub fn is_one(name: &str) -> bool {
    name.starts_with("mcp__")
}

/// The line for people of such a call.
pub fn detail(input: &RawValue) -> String {
    input::one_line(input.get())
}

/// A tool of a server.
#[derive(Debug)]
pub struct McpTool {
    server: Arc<Server>,
    tool: ToolInfo,
    name: String,
}

impl McpTool {
    /// The tool of that server under the name that models know it by.
    pub fn new(server: Arc<Server>, tool: ToolInfo, name: String) -> Self {
        Self { server, tool, name }
    }

    async fn call(&self, ctx: &dyn ToolCtx, raw: &RawValue) -> Result<Outcome, Outcome> {
        let input: Map<String, Value> = match serde_json::from_str(raw.get()) {
            Ok(Value::Object(input)) => input,
            Ok(Value::Null) => Map::new(),
            _ => return Err(Outcome::error(format!("The input of {} has to be an object.", self.name))),
        };
        let title = format!("{}: {} {}", self.server.name(), self.tool.name, detail(raw));
        let body = serde_json::to_string_pretty(&input).unwrap_or_else(|_| raw.get().to_owned());
        files::permit(ctx, Effect::Exec(raw.get().to_owned()), input::one_line(&title), body).await?;
        let (tell, mut told) = mpsc::channel(PROGRESS);
        let limit = Duration::from_millis(ctx.timeout_ms());
        let call = Call { tool: &self.tool.name, input, limit, cancel: ctx.cancel(), progress: tell };
        let answer = self.server.call(call);
        tokio::pin!(answer);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut answer => break answer,
                Some(line) = told.recv() => ctx.emit(&line).await,
            }
        };
        // The last of it often comes together with the answer.
        while let Ok(line) = told.try_recv() {
            ctx.emit(&line).await;
        }
        match answer {
            Ok((ok, text)) => {
                let mut bounded = Bounded::default();
                // Many readers of JSON refuse a NUL.
                bounded.push(&if text.contains('\0') { text.replace('\0', "\u{2400}") } else { text });
                let left_out = bounded.left_out();
                Ok(Outcome { ok, result: bounded.finish(), left_out, ..Outcome::default() })
            }
            Err(CallError::Interrupted) => Err(files::interrupted()),
            Err(e) => Err(Outcome::error(e.to_string())),
        }
    }
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.clone(),
            description: self.tool.description.clone(),
            schema: self.tool.schema.clone(),
        }
    }

    fn detail(&self, input: &RawValue) -> String {
        detail(input)
    }

    fn parallel(&self) -> bool {
        self.tool.read_only
    }

    fn run<'a>(&'a self, ctx: &'a dyn ToolCtx, input: &'a RawValue) -> BoxFuture<'a, Outcome> {
        Box::pin(async move { self.call(ctx, input).await.unwrap_or_else(|outcome| outcome) })
    }
}
