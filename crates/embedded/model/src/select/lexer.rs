//! The words and signs of a label selector.

/// One word or sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'t> {
    End,
    /// `)`
    Close,
    /// `(`
    Open,
    /// `,`
    Comma,
    /// `!`
    Not,
    /// `=`
    Equals,
    /// `==`
    DoubleEquals,
    /// `!=`
    NotEquals,
    /// `>`
    Greater,
    /// `<`
    Less,
    /// `in`, also a word where no operator may be
    In,
    /// `notin`, also a word where no operator may be
    NotIn,
    /// A key or a value
    Word(&'t str),
}

impl<'t> Token<'t> {
    /// It can be a key or a value.
    pub fn is_word(self) -> bool {
        matches!(self, Self::In | Self::NotIn | Self::Word(_))
    }

    /// The text that was read.
    pub fn text(self) -> &'t str {
        match self {
            Self::End => "",
            Self::Close => ")",
            Self::Open => "(",
            Self::Comma => ",",
            Self::Not => "!",
            Self::Equals => "=",
            Self::DoubleEquals => "==",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::In => "in",
            Self::NotIn => "notin",
            Self::Word(text) => text,
        }
    }
}

/// Reads tokens from a text.
pub struct Lexer<'t> {
    rest: &'t str,
}

impl<'t> Lexer<'t> {
    /// Starts at the beginning.
    pub fn new(text: &'t str) -> Self {
        Self { rest: text }
    }

    /// The next token, which stays the next one.
    pub fn peek(&self) -> Token<'t> {
        self.scan().0
    }

    pub fn next(&mut self) -> Token<'t> {
        let (token, rest) = self.scan();
        self.rest = rest;
        token
    }

    fn scan(&self) -> (Token<'t>, &'t str) {
        let text = self.rest.trim_start_matches(is_space);
        let sign = |token: Token<'t>| (token, &text[token.text().len()..]);
        match text.as_bytes() {
            [] | [0, ..] => (Token::End, ""),
            [b'!', b'=', ..] => sign(Token::NotEquals),
            [b'=', b'=', ..] => sign(Token::DoubleEquals),
            [b'!', ..] => sign(Token::Not),
            [b'=', ..] => sign(Token::Equals),
            [b'(', ..] => sign(Token::Open),
            [b')', ..] => sign(Token::Close),
            [b',', ..] => sign(Token::Comma),
            [b'>', ..] => sign(Token::Greater),
            [b'<', ..] => sign(Token::Less),
            _ => {
                let end = text.find(|c| is_space(c) || is_sign(c) || c == '\0').unwrap_or(text.len());
                let (word, rest) = text.split_at(end);
                let token = match word {
                    "in" => Token::In,
                    "notin" => Token::NotIn,
                    word => Token::Word(word),
                };
                (token, rest)
            }
        }
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_sign(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}
