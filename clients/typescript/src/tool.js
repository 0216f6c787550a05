/** The tool that a service offers unless its policy names others, as MCP has it. Written by `make reference`.
 * @type {Record<string, any>} */
export const TOOL = {
  "name": "tool_output",
  "description": "Reads stored tool outputs by handle (several: a,b) and one of the others. Count and sum by query.",
  "inputSchema": {
    "type": "object",
    "properties": {
      "handle": {
        "type": "string"
      },
      "query": {
        "description": "DuckDB SQL over data, lines (of several: data1, …); or JMESPath",
        "type": "string"
      },
      "pattern": {
        "description": "RE2, single lines",
        "type": "string"
      },
      "lines": {
        "description": "10-20,95,-5",
        "type": "string"
      },
      "extract": {
        "description": "words to find passages by",
        "type": "string"
      }
    },
    "required": [
      "handle"
    ],
    "additionalProperties": false
  }
};
