"""For each language: where its grammar is, and which of its nodes are definitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from content.language import Language


@dataclass(frozen=True, slots=True)
class Grammar:
    """`module` and `function` load it. `query` captures each definition by the word that it is shown with; a
    capture `word` or `name` within is that word or name. Otherwise the name is in the node's field `name`, or
    in the fields that `names` gives for its type. Of patterns for one name the first counts."""

    module: str
    function: str
    query: str
    names: Mapping[str, str] = field(default_factory=dict)


_CALLABLE = "[(arrow_function) (function_expression)]"
_JAVASCRIPT = f"""
(function_declaration) @function
(generator_function_declaration) @function
(class_declaration) @class
(class) @class
(method_definition) @method
(variable_declarator value: {_CALLABLE}) @function
(assignment_expression left: (member_expression) right: {_CALLABLE}) @function
(pair value: (function_expression)) @function
"""
_TYPESCRIPT = f"""{_JAVASCRIPT}
(abstract_class_declaration) @class
(interface_declaration) @interface
(type_alias_declaration) @type
(enum_declaration) @enum
(internal_module) @namespace
(module) @module
(function_signature) @function
(abstract_method_signature) @method
(public_field_definition value: {_CALLABLE}) @method
"""
_JAVASCRIPT_NAMES = {"assignment_expression": "left", "pair": "key", "field_definition": "property"}

# Mere declarations count where they cannot be a call or a variable of a function.
_C = """
(function_definition) @function
(translation_unit (declaration) @function)
(preproc_if (declaration) @function)
(preproc_ifdef (declaration) @function)
(declaration_list (declaration) @function)
(struct_specifier body: (_)) @struct
(union_specifier body: (_)) @union
(enum_specifier body: (_)) @enum
(type_definition) @typedef
(preproc_function_def) @define
"""
_CPP = f"""{_C}
(field_declaration_list (declaration) @function)
(field_declaration) @function
(class_specifier body: (_)) @class
(namespace_definition) @namespace
(alias_declaration) @using
(concept_definition) @concept
"""
_C_NAMES = dict.fromkeys(
    ("function_definition", "declaration", "field_declaration", "type_definition"), "declarator"
)

GRAMMARS = {
    Language.PYTHON: Grammar(
        "tree_sitter_python", "language", "(class_definition) @class (function_definition) @def"
    ),
    Language.JAVASCRIPT: Grammar(
        "tree_sitter_javascript",
        "language",
        f"{_JAVASCRIPT} (field_definition value: {_CALLABLE}) @method",
        _JAVASCRIPT_NAMES,
    ),
    Language.TYPESCRIPT: Grammar(
        "tree_sitter_typescript", "language_typescript", _TYPESCRIPT, _JAVASCRIPT_NAMES
    ),
    Language.TSX: Grammar("tree_sitter_typescript", "language_tsx", _TYPESCRIPT, _JAVASCRIPT_NAMES),
    Language.GO: Grammar(
        "tree_sitter_go",
        "language",
        """
        (function_declaration) @func
        (method_declaration) @func
        (type_spec type: (struct_type)) @struct
        (type_spec type: (interface_type)) @interface
        (type_spec) @type
        (type_alias) @type
        """,
        {"method_declaration": "receiver name"},
    ),
    Language.RUST: Grammar(
        "tree_sitter_rust",
        "language",
        """
        (function_item) @fn
        (function_signature_item) @fn
        (struct_item) @struct
        (enum_item) @enum
        (union_item) @union
        (trait_item) @trait
        (impl_item) @impl
        (mod_item) @mod
        (type_item) @type
        (macro_definition) @macro_rules
        """,
        {"impl_item": "trait type"},
    ),
    Language.JAVA: Grammar(
        "tree_sitter_java",
        "language",
        """
        (class_declaration) @class
        (interface_declaration) @interface
        (annotation_type_declaration) @interface
        (enum_declaration) @enum
        (record_declaration) @record
        (method_declaration) @method
        (constructor_declaration) @constructor
        (compact_constructor_declaration) @constructor
        """,
    ),
    Language.C: Grammar("tree_sitter_c", "language", _C, _C_NAMES),
    Language.CPP: Grammar("tree_sitter_cpp", "language", _CPP, _C_NAMES),
    Language.RUBY: Grammar(
        "tree_sitter_ruby",
        "language",
        "(class) @class (module) @module (method) @def (singleton_method) @def",
        {"singleton_method": "object name"},
    ),
    Language.CSHARP: Grammar(
        "tree_sitter_c_sharp",
        "language",
        """
        (namespace_declaration) @namespace
        (file_scoped_namespace_declaration) @namespace
        (class_declaration) @class
        (interface_declaration) @interface
        (struct_declaration) @struct
        (enum_declaration) @enum
        (record_declaration) @record
        (delegate_declaration) @delegate
        (method_declaration) @method
        (local_function_statement) @method
        (constructor_declaration) @constructor
        """,
    ),
    Language.SHELL: Grammar("tree_sitter_bash", "language", "(function_definition) @function"),
    Language.PHP: Grammar(
        "tree_sitter_php",
        "language_php",
        """
        (namespace_definition) @namespace
        (class_declaration) @class
        (interface_declaration) @interface
        (trait_declaration) @trait
        (enum_declaration) @enum
        (function_definition) @function
        (method_declaration) @function
        """,
    ),
    Language.KOTLIN: Grammar(
        "tree_sitter_kotlin",
        "language",
        """
        (class_declaration "interface") @interface
        (class_declaration) @class
        (object_declaration) @object
        (function_declaration) @fun
        (type_alias) @typealias
        """,
        {"type_alias": "type"},
    ),
    Language.SWIFT: Grammar(
        "tree_sitter_swift",
        "language",
        """
        (class_declaration declaration_kind: _ @word) @class
        (protocol_declaration) @protocol
        (typealias_declaration) @typealias
        (function_declaration) @func
        (protocol_function_declaration) @func
        (init_declaration "init" @name) @func
        """,
    ),
}
