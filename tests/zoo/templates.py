"""Chat templates of eight families, written here: the markers and the habits of the real ones, nothing else of them.

Habits are what makes a template lose or garble a row: trimming, folding or leaving out turns, dropping old thoughts,
raising errors for orders of turns that it does not expect.
"""

#: Calls end the turn and push its text out; results are JSON; schemas stand in the first user turn. A list of tools,
#: even an empty one, is announced.
LLAMA_31 = """\
{{- bos_token -}}
{%- if not date_string is defined -%}{%- set date_string = '26 Jul 2024' -%}{%- endif -%}
{%- set system = '' -%}
{%- if messages[0].role == 'system' -%}
  {%- set system = messages[0].content | trim -%}
  {%- set messages = messages[1:] -%}
{%- endif -%}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' -}}
{%- if tools is defined and tools is not none -%}{{- 'Environment: ipython\\n' -}}{%- endif -%}
{{- 'Today Date: ' + date_string + '\\n\\n' + system + '<|eot_id|>' -}}
{%- for message in messages -%}
  {%- if message.role in ('tool', 'ipython') -%}
    {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + message.content | tojson + '<|eot_id|>' -}}
  {%- elif message.tool_calls -%}
    {%- if message.tool_calls | length != 1 -%}
      {{- raise_exception('This model only supports single tool-calls at once!') -}}
    {%- endif -%}
    {%- set call = message.tool_calls[0].function -%}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' -}}
    {{- call.arguments | tojson + '}<|eot_id|>' -}}
  {%- else -%}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' -}}
    {%- if loop.first and tools -%}
      {%- for tool in tools -%}{{- tool | tojson(indent=4) + '\\n\\n' -}}{%- endfor -%}
    {%- endif -%}
    {{- message.content | trim + '<|eot_id|>' -}}
  {%- endif -%}
{%- endfor -%}
"""

_CHATML_SCHEMAS = """\
{%- set first = messages[0] -%}
{%- if tools -%}
  {{- '<|im_start|>system\\n' + (first.content + '\\n\\n' if first.role == 'system' else '') + '<tools>' -}}
  {%- for tool in tools -%}{{- '\\n' + tool | tojson -}}{%- endfor -%}
  {{- '\\n</tools><|im_end|>\\n' -}}
{%- elif first.role == 'system' -%}
  {{- '<|im_start|>system\\n' + first.content + '<|im_end|>\\n' -}}
{%- endif -%}
"""
_CHATML_RESULT = """\
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
    {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' -}}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
"""

#: A role that it does not know leaves nothing.
QWEN_25 = (
    _CHATML_SCHEMAS
    + """\
{%- for message in messages -%}
  {%- if message.role == 'user' or (message.role == 'system' and not loop.first)
      or (message.role == 'assistant' and not message.tool_calls) -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
  {%- elif message.role == 'assistant' -%}
    {{- '<|im_start|>assistant' -}}
    {%- if message.content -%}{{- '\\n' + message.content -}}{%- endif -%}
    {%- for call in message.tool_calls -%}
      {%- set call = call.function or call -%}
      {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' + call.arguments | tojson -}}
      {{- '}\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- elif message.role == 'tool' -%}
"""
    + _CHATML_RESULT
    + """\
  {%- endif -%}
{%- endfor -%}
"""
)

#: Thoughts only behind the last user turn; content that is no text leaves nothing; arguments that are text stay text.
QWEN_3 = (
    _CHATML_SCHEMAS
    + """\
{%- set seen = namespace(last=messages | length - 1) -%}
{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set seen.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- set content = message.content if message.content is string else '' -%}
  {%- if message.role == 'user' or (message.role == 'system' and not loop.first) -%}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' -}}
  {%- elif message.role == 'assistant' -%}
    {%- set thoughts = '' -%}
    {%- if message.reasoning_content is string -%}
      {%- set thoughts = message.reasoning_content -%}
    {%- elif '</think>' in content -%}
      {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') -%}
      {%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
    {%- endif -%}
    {%- if loop.index0 > seen.last and (loop.last or thoughts) -%}
      {{- '<|im_start|>assistant\\n<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' -}}
      {{- content.lstrip('\\n') -}}
    {%- else -%}
      {{- '<|im_start|>assistant\\n' + content -}}
    {%- endif -%}
    {%- for call in message.tool_calls or [] -%}
      {%- if not loop.first or content -%}{{- '\\n' -}}{%- endif -%}
      {%- set call = call.function or call -%}
      {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' -}}
      {%- if call.arguments is string -%}{{- call.arguments -}}{%- else -%}{{- call.arguments | tojson -}}{%- endif -%}
      {{- '}\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- elif message.role == 'tool' -%}
"""
    + _CHATML_RESULT.replace("message.content", "content")
    + """\
  {%- endif -%}
{%- endfor -%}
"""
)

#: A system turn goes into the first user turn; other turns must alternate; no calls, no schemas.
GEMMA_3 = """\
{{- bos_token -}}
{%- set preamble = '' -%}
{%- if messages[0].role == 'system' -%}
  {%- set first = messages[0].content -%}
  {%- set preamble = (first if first is string else first[0].text) + '\\n\\n' -%}
  {%- set messages = messages[1:] -%}
{%- endif -%}
{%- for message in messages -%}
  {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
    {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') -}}
  {%- endif -%}
  {%- set role = 'model' if message.role == 'assistant' else message.role -%}
  {{- '<start_of_turn>' + role + '\\n' + (preamble if loop.first else '') -}}
  {%- if message.content is string -%}
    {{- message.content | trim -}}
  {%- elif message.content is iterable -%}
    {%- for part in message.content -%}
      {%- if part.type == 'image' -%}{{- '<start_of_image>' -}}
      {%- elif part.type == 'text' -%}{{- part.text | trim -}}{%- endif -%}
    {%- endfor -%}
  {%- else -%}
    {{- raise_exception('Invalid content type') -}}
  {%- endif -%}
  {{- '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}
"""

#: The system turn stands only before a user turn that is the last of all; ids of calls have nine characters.
MISTRAL = """\
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}
  {%- set system = messages[0].content -%}
  {%- set messages = messages[1:] -%}
{%- endif -%}
{%- set users = messages | selectattr('role', 'equalto', 'user') | list -%}
{%- set turns = namespace(index=0) -%}
{%- for message in messages -%}
  {%- if message.role in ('user', 'assistant') and not message.tool_calls -%}
    {%- if (message.role == 'user') != (turns.index % 2 == 0) -%}
      {{- raise_exception('After the optional system message, conversation roles must alternate') -}}
    {%- endif -%}
    {%- set turns.index = turns.index + 1 -%}
  {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}
    {%- if tools and message == users[-1] -%}
      {{- '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' -}}
    {%- endif -%}
    {%- if loop.last and system is defined -%}
      {{- '[INST] ' + system + '\\n\\n' + message.content + '[/INST]' -}}
    {%- else -%}
      {{- '[INST] ' + message.content + '[/INST]' -}}
    {%- endif -%}
  {%- elif message.tool_calls -%}
    {{- '[TOOL_CALLS] [' -}}
    {%- for call in message.tool_calls -%}
      {%- if not call.id is defined or call.id | length != 9 -%}
        {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') -}}
      {%- endif -%}
      {{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' + ('' if loop.last else ', ') -}}
    {%- endfor -%}
    {{- ']' + eos_token -}}
  {%- elif message.role == 'assistant' -%}
    {{- ' ' + message.content | trim + eos_token -}}
  {%- elif message.role == 'tool' -%}
    {%- if not message.tool_call_id is defined or message.tool_call_id | length != 9 -%}
      {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') -}}
    {%- endif -%}
    {{- '[TOOL_RESULTS] {"content": ' + message.content | tojson + ', "call_id": "' + message.tool_call_id -}}
    {{- '"}[/TOOL_RESULTS]' -}}
  {%- else -%}
    {{- raise_exception('Only user and assistant roles are supported') -}}
  {%- endif -%}
{%- endfor -%}
"""

#: Every system turn stands at the beginning; a call only where content is null; arguments are put in as text.
DEEPSEEK_V3 = """\
{%- set seen = namespace(system='', tool=false) -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set seen.system = seen.system + ('\\n\\n' if seen.system else '') + message.content -%}
  {%- endif -%}
{%- endfor -%}
{{- bos_token + seen.system -}}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}
    {%- set seen.tool = false -%}
    {{- '<｜User｜>' + message.content -}}
  {%- elif message.role == 'assistant' and message.content is none -%}
    {{- '<｜Assistant｜><｜tool▁calls▁begin｜>' -}}
    {%- for call in message.tool_calls -%}
      {{- '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' -}}
      {{- call.function.arguments + '\\n```<｜tool▁call▁end｜>' -}}
    {%- endfor -%}
    {{- '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' -}}
  {%- elif message.role == 'assistant' -%}
    {{- '<｜tool▁outputs▁end｜>' if seen.tool else '<｜Assistant｜>' -}}
    {{- message.content + '<｜end▁of▁sentence｜>' -}}
    {%- set seen.tool = false -%}
  {%- elif message.role == 'tool' -%}
    {{- '' if seen.tool else '<｜tool▁outputs▁begin｜>' -}}
    {{- '<｜tool▁output▁begin｜>' + message.content + '<｜tool▁output▁end｜>' -}}
    {%- set seen.tool = true -%}
  {%- endif -%}
{%- endfor -%}
"""

#: Writes the day; thoughts are `thinking`; the first call alone; a result needs a call before it.
GPT_OSS = """\
{{- '<|start|>system<|message|>Current date: ' + strftime_now('%Y-%m-%d') + '<|end|>' -}}
{%- set seen = namespace(call=none, developer='') -%}
{%- if messages[0].role in ('system', 'developer') -%}
  {%- set seen.developer = messages[0].content -%}
  {%- set messages = messages[1:] -%}
{%- endif -%}
{%- if seen.developer or tools -%}
  {{- '<|start|>developer<|message|># Instructions\\n\\n' + seen.developer -}}
  {%- for tool in tools or [] -%}
    {%- set function = tool.function or tool -%}
    {{- '\\n// ' + function.description + '\\ntype ' + function.name + ' = (_: any) => any;' -}}
  {%- endfor -%}
  {{- '<|end|>' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' and message.tool_calls -%}
    {%- if message.content and message.thinking -%}
      {{- raise_exception('Cannot pass both content and thinking in an assistant message with tool calls!') -}}
    {%- endif -%}
    {%- set later = messages[loop.index:] | selectattr('role', 'equalto', 'assistant') -%}
    {%- set is_last = not later | rejectattr('tool_calls', 'defined') | list -%}
    {%- if message.content or (message.thinking and is_last) -%}
      {{- '<|start|>assistant<|channel|>analysis<|message|>' + (message.content or message.thinking) + '<|end|>' -}}
    {%- endif -%}
    {%- set call = message.tool_calls[0].function or message.tool_calls[0] -%}
    {{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' -}}
    {{- call.arguments | tojson + '<|call|>' -}}
    {%- set seen.call = call.name -%}
  {%- elif message.role == 'assistant' -%}
    {%- if loop.last and message.thinking -%}
      {{- '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' -}}
    {%- endif -%}
    {{- '<|start|>assistant<|channel|>final<|message|>' + message.content -}}
    {{- '<|return|>' if loop.last else '<|end|>' -}}
  {%- elif message.role == 'tool' -%}
    {%- if seen.call is none -%}{{- raise_exception('Message has tool role, but there was no call!') -}}{%- endif -%}
    {{- '<|start|>functions.' + seen.call + ' to=assistant<|channel|>commentary<|message|>' -}}
    {{- message.content | tojson + '<|end|>' -}}
  {%- elif message.role == 'user' -%}
    {{- '<|start|>user<|message|>' + message.content + '<|end|>' -}}
  {%- endif -%}
{%- endfor -%}
"""

#: ChatML with calls as XML, whose arguments it walks through; earlier answers have an empty thought.
NEMOTRON = (
    """\
{%- set seen = namespace(last=-1) -%}
{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set seen.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{{- '<|im_start|>system\\n' + (messages[0].content if messages[0].role == 'system' else '') -}}
{%- for tool in tools or [] -%}
  {%- set function = tool.function or tool -%}
  {{- '\\n<function>\\n<name>' + function.name + '</name>\\n' + function.parameters | tojson + '\\n</function>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- for message in (messages[1:] if messages[0].role == 'system' else messages) -%}
  {%- set offset = 1 if messages[0].role == 'system' else 0 -%}
  {%- if message.role == 'assistant' -%}
    {%- set content = message.content if message.content is string else '' -%}
    {%- if message.reasoning_content -%}
      {%- set content = '<think>\\n' + message.reasoning_content + '\\n</think>\\n' + content -%}
    {%- endif -%}
    {%- if '</think>' not in content -%}
      {%- set content = '<think></think>' + content -%}
    {%- elif loop.index0 + offset < seen.last -%}
      {%- set content = '<think></think>' + content.split('</think>')[-1] -%}
    {%- endif -%}
    {{- '<|im_start|>assistant\\n' + content | trim -}}
    {%- for call in message.tool_calls or [] -%}
      {%- set call = call.function or call -%}
      {{- '\\n<tool_call>\\n<function=' + call.name + '>\\n' -}}
      {%- for name, value in call.arguments | items -%}
        {{- '<parameter=' + name + '>\\n' + (value if value is string else value | tojson) + '\\n</parameter>\\n' -}}
      {%- endfor -%}
      {{- '</function>\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- elif message.role == 'tool' -%}
"""
    + _CHATML_RESULT.replace("loop.first or messages[loop.index0 - 1]", "loop.first or loop.previtem").replace(
        "messages[loop.index0 + 1]", "loop.nextitem"
    )
    + """\
  {%- else -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
  {%- endif -%}
{%- endfor -%}
"""
)
