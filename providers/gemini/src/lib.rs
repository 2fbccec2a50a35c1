//! Google's wire: Gemini, on the Developer API and on Vertex.
